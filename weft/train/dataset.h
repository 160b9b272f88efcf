// What a run trains on: the data sets and the formats of files that recipes name, each an entry of
// a registry. docs/adding-to-training.md shows how to add one.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weft/base/registry.h"
#include "weft/data/loader.h"
#include "weft/io/text.h"
#include "weft/models/model.h"
#include "weft/train/recipe.h"

namespace weft::train {

struct Experiment;

enum class Task { classification, causal_lm, masked_lm };
std::string_view name(Task task);

struct DataOptions {
  bool with_data = true;                          // false: no sources; text then needs `vocabulary`
  std::optional<io::Vocabulary> vocabulary = {};  // of an earlier run, instead of the data's own
};

struct TaskData {
  Task task = Task::classification;
  TaskShape shape;                                        // of one sample
  std::optional<io::Vocabulary> vocabulary = {};          // of tokens that spell text
  std::shared_ptr<const data::Source> train, validation;  // the second is null where none is kept
};

struct DataEntry {
  std::string name, doc;
  // Throws Error(usage) for what is wrong with the recipe (Recipe::refuse), Error(data) for files.
  std::function<TaskData(const Recipe&, const DataOptions&)> read;
  // Keys of the recipe's table that it reads, where not every data set does: masking and
  // normalization are refused for the others.
  std::vector<std::string_view> reads = {};
  std::vector<RecipeKey> keys = {};         // that it brings to the table
  std::function<std::string()> where = {};  // for weft list; empty: "always"
  std::string metric = "accuracy";          // what evaluations report as accuracy
  std::string unit = {};                    // what its samples are called; "": by their kind
  std::function<std::string(const Experiment&)> examples = {};  // shown when a run ends
  std::function<std::string(const Experiment&)> note = {};      // said below generated text

  bool does_read(std::string_view key) const;
};

// The entry that a recipe names.
const DataEntry& data_entry(const Recipe& recipe);

// A path as it stands, else under the folder of data sets. Throws Error(data) if it is in neither.
std::string find_data(const std::string& path);
// The folder of data sets, to look for `wanted` in. Throws Error(data) if there is none.
std::string data_folder(const std::string& wanted);

}  // namespace weft::train

namespace weft::registry {
Registry<train::DataEntry>& datasets();  // data.dataset
Registry<train::DataEntry>& formats();   // data.format: of the files under data.path
}  // namespace weft::registry
