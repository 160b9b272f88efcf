// Loads models by name, for verbs: checkpoints of runs, and published models in folders.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "weft/artifact/artifact.h"
#include "weft/cli/recipes/recipe_arguments.h"
#include "weft/data/chat_template/chat_template.h"
#include "weft/data/text_codec.h"
#include "weft/infer/token_model.h"
#include "weft/io/generation_config.h"
#include "weft/models/pretrained.h"
#include "weft/train/experiment.h"

namespace weft::cli {

// Resolves a checkpoint by its path, its run's folder, or its run's name.
std::string checkpoint_of(const std::string& name);
// Returns the folder of an adapter: PEFT's, or the checkpoint of a run, named as above. Throws
// Error(usage) where its weights are no adapter's.
std::string adapter_folder_of(const std::string& name);
// Builds the experiment of a checkpoint, with its weights.
train::Experiment load_experiment(const std::string& folder, const RecipeFlags& flags,
                                  bool with_data);

// TextModel is a language model that verbs generate text with.
struct TextModel {
  // Either `experiment` or `pretrained` holds the model. A compiled model has neither: `compiled`
  // makes its sequences, a fixed number of them.
  std::optional<train::Experiment> experiment = {};
  std::optional<models::Pretrained> pretrained = {};
  std::function<std::unique_ptr<infer::TokenModel>()> compiled = {};
  bool is_published = false;                    // sampling has the defaults of transformers
  std::string name = {};                        // as the user gave it
  std::string folder = {};                      // folder of the published model
  std::vector<std::string> adapter_files = {};  // files with weights of its adapter
  data::TextCodec codec;
  std::string device;
  int64_t vocabulary = 0, context = 0;
  bool slides = false;  // sequences that fill the context go on with its last half
  // These are the defaults of generation_config.json.
  io::GenerationConfig defaults = {};
  std::optional<data::ChatTemplate> chat = {};

  const Model& model() const { return experiment ? *experiment->model : *pretrained->model; }
  // Makes sequences that continue. `activations` is as --activations names it. Throws Error(usage)
  // for options that the model cannot have, and those that a compiled one was not compiled with.
  std::unique_ptr<infer::TokenModel> sequences(infer::TokenModelOptions options,
                                               const std::string& activations) const;
};
struct TextModelOptions {
  RecipeFlags flags = {};
  std::optional<DType> dtype = {};      // type of a published model; absent: its files' type
  std::string adapter = {};             // a folder of PEFT's with an adapter of it; "": none
  artifact::ReadOptions compiled = {};  // for a compiled model
};
// Loads a published model. `checkpoint` has an adapter of it; "": none has.
TextModel published_text(const std::string& folder, const TextModelOptions& options,
                         const std::string& checkpoint);
// Throws Error(usage) unless `name` is the name of a language model.
TextModel load_text_model(const std::string& name, const TextModelOptions& options);

}  // namespace weft::cli
