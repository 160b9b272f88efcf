#include "weft/cli/models/text_model.h"

#include "weft/base/error.h"
#include "weft/cli/models/model_kind.h"
#include "weft/cli/models/text_flags.h"
#include "weft/io/files.h"
#include "weft/models/adapter.h"
#include "weft/train/checkpoint/checkpoint.h"

namespace weft::cli {

std::string checkpoint_of(const std::string& name) {
  return train::verified_checkpoint(train::locate_run(name));
}

std::string adapter_folder_of(const std::string& name) {
  const bool is_peft =
      models::is_adapter_folder(name) && !io::exists(name + "/MANIFEST.json", ErrorKind::usage);
  const std::string folder = is_peft ? name : checkpoint_of(name);
  if (!models::is_adapter_folder(folder))
    throw Error(ErrorKind::usage, "{} has no adapter: its weights are whole already.", folder);
  return folder;
}

train::Experiment load_experiment(const std::string& folder, const RecipeFlags& flags,
                                  bool with_data) {
  train::Recipe recipe = train::checkpoint_recipe(folder);
  recipe.apply_environment();
  apply_flags(recipe, flags);
  train::Experiment experiment =
      train::make_experiment(recipe, {.initialize = false,
                                      .with_data = with_data,
                                      .vocabulary = train::checkpoint_vocabulary(folder),
                                      .checkpoint = folder});
  train::load_model(folder, experiment);
  return experiment;
}

TextModel load_text_model(const std::string& name, const TextModelOptions& options) {
  const ModelKind& kind = kind_of(name);
  if (kind.text_model == nullptr)
    throw Error(ErrorKind::usage, "{} is {}, which generates no text.", io::printable(name),
                kind.format.text);
  TextModel model = kind.text_model(name, options);
  model.name = name;
  return model;
}

std::unique_ptr<infer::TokenModel> TextModel::sequences(infer::TokenModelOptions options,
                                                        const std::string& activations) const {
  if (compiled == nullptr) {
    options.device = device;
    options.activations = activations_of(activations, model(), name);
    return infer::make_token_model(model(), vocabulary, context, options);
  }
  if (!activations.empty())
    throw Error(ErrorKind::usage, "--activations is for weft compile. {} is compiled.",
                io::printable(name));
  std::unique_ptr<infer::TokenModel> tokens = compiled();
  if (tokens->batch() != options.batch)
    throw Error(ErrorKind::usage,
                "{} was compiled for {} sequences at once. Got {}. Hint: weft compile --batch {}.",
                io::printable(name), tokens->batch(), options.batch, options.batch);
  return tokens;
}

}  // namespace weft::cli
