// Declares the data that a run trains on: the data sets and file formats that recipes name, each an
// entry of a registry. docs/adding-to-training.md shows how to add one.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weft/base/recipe/registry.h"
#include "weft/data/framed.h"
#include "weft/data/labelled.h"
#include "weft/data/loader.h"
#include "weft/data/text_codec.h"
#include "weft/io/model_folder.h"
#include "weft/models/model.h"
#include "weft/train/recipe/recipe.h"

namespace weft::train {

struct Experiment;

struct DataOptions {
  bool with_data = true;  // false: no sources; text then needs `vocabulary`
  std::optional<data::TextCodec> vocabulary = {};  // a tokenizer, or an earlier run's
  std::string tokenizer = {};  // the folder of `vocabulary`, with what it says beside; "": none
  bool evaluate_only = false;  // text: all of data.path is `validation`, and `train` is null
  std::optional<data::Frame> frame = {};  // frame of each sample of a text; absent: it has none
  std::string checkpoint = {};            // the folder of the run's checkpoint; "": it has none yet
  // `labels` is set for an encoder, which learns texts with labels where the format has them
  // (DataEntry::has_labels).
  std::optional<data::LabelOptions> labels = {};
};

struct TaskData {
  Task task = Task::classification;
  TaskShape shape;                                        // shape of one sample
  std::optional<data::TextCodec> vocabulary = {};         // vocabulary of tokens that spell text
  std::shared_ptr<const data::Source> train, validation;  // `validation` may be null
  std::vector<double> target_units = {};                  // as EvalSums has them; empty: 1
  std::vector<io::FolderFile> files = {};                 // of the data, which checkpoints keep
  std::optional<data::Labels> labels = {};                // of texts with labels
  std::vector<std::string> class_names = {};              // of images, by label; empty: none
};

// The key of a format of texts with which several samples share a row; models that keep samples
// apart take such rows.
inline constexpr std::string_view packing_key = "data.packing";

struct DataEntry {
  std::string name, doc;
  // Throws Error(usage) for errors of the recipe (Recipe::refuse), Error(data) for errors of files.
  std::function<TaskData(const Recipe&, const DataOptions&)> read;
  // `reads` names keys of the recipe's table that only some data sets read; masking and
  // normalization are refused for the others.
  std::vector<std::string_view> reads = {};
  std::vector<RecipeKey> keys = {};         // added to the recipe's table
  std::function<std::string()> where = {};  // availability, for weft list; empty: "always"
  // `metric` is the metric that evaluations report as accuracy; evaluations of a regression report
  // r2 instead.
  std::string metric = "accuracy";
  bool has_labels = false;  // encoders learn the labels of its texts
  std::string unit = {};    // the name of its samples; "": by their kind
  std::function<std::string(const Experiment&)> examples = {};  // printed when a run ends
  std::function<std::string(const Experiment&)> note = {};      // printed below generated text
  std::vector<std::string_view> files = {};  // the names that TaskData::files may have

  bool does_read(std::string_view key) const;
};

// Returns the entry that a recipe names.
const DataEntry& data_entry(const Recipe& recipe);

// Returns `path` if it exists or is absolute, else the path under the folder of data sets. Throws
// Error(data) if that is missing, too.
std::string find_data(const std::string& path);
// Returns the folder of data sets. Throws Error(data), which names `wanted`, if there is none.
std::string data_folder(const std::string& wanted);

}  // namespace weft::train

namespace weft::registry {
Registry<train::DataEntry>& datasets();  // data.dataset
Registry<train::DataEntry>& formats();   // data.format: of the files under data.path
}  // namespace weft::registry
