// Models that verbs load by name: checkpoints of runs.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "weft/cli/recipe_arguments.h"
#include "weft/infer/text_codec.h"
#include "weft/infer/token_model.h"
#include "weft/train/experiment.h"

namespace weft::cli {

// Resolves a checkpoint by its path, its run's folder, or its run's name.
std::string checkpoint_of(const std::string& name);
// Builds the experiment of a checkpoint, with its weights.
train::Experiment load_experiment(const std::string& folder, const RecipeFlags& flags,
                                  bool with_data);

// TextModel is a language model that verbs generate text with.
struct TextModel {
  train::Experiment experiment;
  infer::TextCodec codec;
  std::string device;
  int64_t vocabulary = 0, context = 0;
  // Whether sequences that fill the context go on with its last half.
  bool slides = false;

  const Model& model() const { return *experiment.model; }
};
// Throws Error(usage) unless `name` is that of a language model.
TextModel load_text_model(const std::string& name, const RecipeFlags& flags);

}  // namespace weft::cli
