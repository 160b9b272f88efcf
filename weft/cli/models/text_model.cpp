#include "weft/cli/models/text_model.h"

#include <algorithm>
#include <filesystem>

#include "weft/base/error.h"
#include "weft/data/chat_template/tokenizer_config.h"
#include "weft/infer/sampler.h"
#include "weft/io/files.h"
#include "weft/io/model_folder.h"
#include "weft/models/decoder.h"
#include "weft/onnx/file/model.h"
#include "weft/train/checkpoint/adapter_base.h"
#include "weft/train/checkpoint/checkpoint.h"
#include "weft/train/task/imported.h"
#include "weft/train/task/published.h"

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
  return load_experiment(folder, train::checkpoint_recipe(folder), flags, with_data);
}

train::Experiment load_experiment(const std::string& folder, const train::Recipe& trained,
                                  const RecipeFlags& flags, bool with_data) {
  train::Recipe recipe = trained;
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

train::Experiment evaluation_of(const std::string& model, const RecipeFlags& flags) {
  constexpr int64_t usual_length = 1024;
  for (const RecipeFlag& flag : flags)
    if (flag.path.starts_with("model."))
      throw Error(ErrorKind::usage, "{} is for recipes. {} is a published model.", flag.flag,
                  model);
  const int64_t context = models::load_pretrained(model, {.weights = false}).context;
  train::Recipe recipe;
  auto set = [&](std::string_view key, const std::string& value) {
    apply_flags(recipe, {{"", std::string(key), value}});
  };
  set(keys::model::pretrained, model);
  const auto is_jsonl = [](const RecipeFlag& flag) {
    return flag.path == keys::data::path && flag.value.ends_with(".jsonl");
  };
  set(keys::data::format, std::ranges::any_of(flags, is_jsonl) ? "jsonl" : "text");
  set(keys::data::seq_len, std::to_string(std::min(context, usual_length)));
  set(keys::train::steps, "1");  // none is taken
  set(keys::eval::batch_size, "1");
  recipe.apply_environment();
  apply_flags(recipe, flags);
  if (!recipe->data.path)
    throw Error(ErrorKind::usage, "evaluating {} needs a text. Hint: --data.path FILE.", model);
  return train::make_experiment(recipe, {.evaluate_only = true});
}

train::Experiment evaluation_of_onnx(const std::string& file, const RecipeFlags& flags,
                                     std::string_view doing, std::string_view also) {
  onnx::check_there(file);
  for (const RecipeFlag& flag : flags)
    if (flag.path.starts_with("model."))
      throw Error(ErrorKind::usage, "{} is for recipes. {} is an ONNX file.", flag.flag, file);
  train::Recipe recipe;
  apply_flags(recipe, {{"", std::string(keys::model::pretrained), file},
                       {"", std::string(keys::train::steps), "1"}});
  recipe.apply_environment();
  apply_flags(recipe, flags);
  if (!recipe->data.dataset && !recipe->data.format)
    throw Error(ErrorKind::usage,
                "{} {} needs data. Hint: {}--data.dataset cifar10, or --data.format and "
                "--data.path.",
                doing, file, also);
  return train::make_experiment(recipe, {.evaluate_only = true});
}

namespace {
TextModel text_model_of(train::Experiment experiment) {
  if (experiment.task != train::Task::causal_lm)
    throw Error(ErrorKind::usage,
                "only causal language models generate text. The task of this model is {}.",
                train::name(experiment.task));
  if (!experiment.vocabulary)
    throw Error(ErrorKind::usage, "generating text needs a vocabulary. {} has none.",
                *experiment.recipe->data.dataset);
  data::TextCodec codec = *experiment.vocabulary;
  std::string device = experiment.recipe->train.device;
  const int64_t vocabulary = experiment.shape.classes, context = experiment.shape.input[0];
  return {.experiment = std::move(experiment),
          .codec = std::move(codec),
          .device = std::move(device),
          .vocabulary = vocabulary,
          .context = context,
          .slides = true};
}

// The device is the only key of a recipe that a published model has.
std::string device_of(const RecipeFlags& flags) {
  train::Recipe recipe;
  recipe.apply_environment();
  for (const RecipeFlag& flag : flags)
    if (flag.path != keys::train::device)
      throw Error(ErrorKind::usage, "{} is for runs of weft's own. This is a published model.",
                  flag.flag);
  apply_flags(recipe, flags);
  return recipe->train.device;
}

// Refuses sampling options of a folder that no sampler can do, with the name of its file.
void check_sampling(const io::GenerationConfig& config) try {
  infer::SamplingOptions sampling;
  sampling.temperature = config.temperature.value_or(sampling.temperature);
  sampling.top_k = config.top_k.value_or(sampling.top_k);
  sampling.top_p = config.top_p.value_or(sampling.top_p);
  sampling.min_p = config.min_p.value_or(sampling.min_p);
  sampling.repetition_penalty = config.repetition_penalty.value_or(sampling.repetition_penalty);
  infer::check(sampling);
} catch (const Error& error) {
  throw Error(ErrorKind::data, "{}: {}", config.file, error.what());
}

// `checkpoint` has an adapter of the model; "": there is none.
TextModel published(const std::string& folder, const TextModelOptions& options,
                    const std::string& checkpoint = "") {
  if (io::is_folder(folder))
    for (std::string_view file : train::published_files)
      io::file_of_folder(folder, std::string(file));  // refuses links that leave the folder
  const std::string adapter =
      options.adapter.empty() ? checkpoint : adapter_folder_of(options.adapter);
  const data::TokenizerConfig tokens = data::TokenizerConfig::load(folder);
  data::Tokenizer tokenizer = data::Tokenizer::load(folder);
  models::Pretrained pretrained = models::load_pretrained(folder, {.dtype = options.dtype});
  if (dynamic_cast<const models::Decoder*>(pretrained.model.get()) == nullptr)
    throw Error(ErrorKind::usage, "{} is an encoder, which generates no text.", folder);
  std::vector<std::string> adapter_files;
  if (!adapter.empty()) {
    const nn::BuildScope scope({.dtype = pretrained.dtype});
    train::load_adapter(*pretrained.model, folder, adapter);
    adapter_files.push_back(
        (std::filesystem::path(adapter) / models::adapter_weights_file).string());
  }
  tokenizer.check_fits(pretrained.vocabulary);
  TextModel model{.folder = folder,
                  .adapter_files = std::move(adapter_files),
                  .codec = std::move(tokenizer),
                  .device = device_of(options.flags),
                  .vocabulary = pretrained.vocabulary,
                  .context = pretrained.context};
  model.defaults = io::read_generation_config(folder);
  check_sampling(model.defaults);
  model.chat = tokens.chat_template();
  model.pretrained = std::move(pretrained);
  return model;
}
// Loads the base of an adapter's checkpoint where the run had it, or where a flag says.
TextModel adapted(const train::Recipe& recipe, TextModelOptions options,
                  const std::string& checkpoint) {
  std::string base = *recipe->model.pretrained;
  std::erase_if(options.flags, [&](const RecipeFlag& flag) {
    if (flag.path != keys::model::pretrained) return false;
    base = flag.value;
    return true;
  });
  if (!models::is_model(base))
    throw Error(ErrorKind::usage,
                "{} adapts {}, which is no published model. Hint: --model.pretrained FOLDER.",
                checkpoint, io::printable(base));
  return published(base, options, checkpoint);
}
}  // namespace

TextModel load_text_model(const std::string& name, const TextModelOptions& options) {
  if (models::is_model(name)) return published(name, options);
  const std::string checkpoint = checkpoint_of(name);
  // A checkpoint of a published model is such a folder, too.
  const train::Recipe recipe = train::checkpoint_recipe(checkpoint);
  if (recipe->adapter.type) {
    if (!options.adapter.empty())
      throw Error(ErrorKind::usage, "{} has an adapter of its own. Hint: {} --adapter {}.", name,
                  *recipe->model.pretrained, options.adapter);
    return adapted(recipe, options, checkpoint);
  }
  if (recipe->model.pretrained && !train::trains_onnx(recipe))
    return published(checkpoint, options);
  if (options.dtype || !options.adapter.empty())
    throw Error(ErrorKind::usage, "{} is for published models. {} is a run of weft's own.",
                options.dtype ? "--dtype" : "--adapter", name);
  return text_model_of(load_experiment(checkpoint, options.flags, false));
}

}  // namespace weft::cli
