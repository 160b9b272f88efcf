#include "weft/cli/text_model.h"

#include "weft/train/checkpoint.h"

namespace weft::cli {

std::string checkpoint_of(const std::string& name) {
  return train::verified_checkpoint(train::locate_run(name));
}

train::Experiment load_experiment(const std::string& folder, const RecipeFlags& flags,
                                  bool with_data) {
  train::Recipe recipe = train::checkpoint_recipe(folder);
  recipe.apply_environment();
  apply_flags(recipe, flags);
  train::Experiment experiment =
      train::make_experiment(recipe, {.initialize = false,
                                      .with_data = with_data,
                                      .vocabulary = train::checkpoint_vocabulary(folder)});
  train::load_model(folder, experiment);
  return experiment;
}

TextModel load_text_model(const std::string& name, const RecipeFlags& flags) {
  train::Experiment experiment = load_experiment(checkpoint_of(name), flags, false);
  if (experiment.task != train::Task::causal_lm)
    throw Error(ErrorKind::usage,
                "only causal language models generate text. The task of this model is {}.",
                train::name(experiment.task));
  if (!experiment.vocabulary)
    throw Error(ErrorKind::usage, "generating text needs a vocabulary. {} has none.",
                experiment.recipe.text("data.dataset"));
  infer::TextCodec codec(*experiment.vocabulary);
  std::string device = experiment.recipe.text("train.device");
  const int64_t vocabulary = experiment.shape.classes, context = experiment.shape.input[0];
  return {.experiment = std::move(experiment),
          .codec = std::move(codec),
          .device = std::move(device),
          .vocabulary = vocabulary,
          .context = context,
          .slides = true};
}

}  // namespace weft::cli
