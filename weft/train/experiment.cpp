#include "weft/train/experiment.h"

#include <algorithm>
#include <filesystem>

#include "weft/base/env.h"
#include "weft/base/hash.h"
#include "weft/base/memory.h"
#include "weft/data/addition.h"
#include "weft/data/images.h"
#include "weft/data/masked.h"
#include "weft/data/synthetic.h"
#include "weft/data/tokens.h"
#include "weft/device/registry.h"
#include "weft/io/files.h"
#include "weft/nn/module.h"
#include "weft/optim/registry.h"

namespace weft::train {
namespace {
// What is wrong with a key, where it was given.
[[noreturn]] void usage(const Recipe& recipe, std::string_view key, const std::string& message) {
  throw Error(ErrorKind::usage, "{}: {}", recipe.where(key), message);
}

// What the data say of a run.
struct DataParts {
  Task task = Task::classification;
  TaskShape shape;
  std::optional<io::Vocabulary> vocabulary;
  std::shared_ptr<const data::Source> train, validation;
};

// The folder of data sets, where `wanted` is looked for.
std::string folder_of_data(const std::string& wanted) {
  std::string folder = data_directory();
  if (folder.empty())
    throw Error(ErrorKind::data,
                "no folder to look for {} in: neither WEFT_DATA_DIR nor HOME names one. Hint: "
                "data.path.",
                wanted);
  return folder;
}

// A path as it stands, else under the folder of data sets.
std::string located(const std::string& path) {
  namespace fs = std::filesystem;
  if (io::exists(path) || fs::path(path).is_absolute()) return path;
  const std::string folder = folder_of_data(path), below = (fs::path(folder) / path).string();
  if (!io::exists(below))
    throw Error(ErrorKind::data, "{} is neither here nor in WEFT_DATA_DIR ({}).", path, folder);
  return below;
}

data::Transforms read_transforms(const Recipe& recipe) {
  data::Transforms transforms;
  for (const TransformSpec& spec : recipe.transforms()) {
    nn::OptionReader reader(spec.options, "data.transforms: " + spec.name);
    if (spec.name == "random_crop")
      transforms.random_crop = reader.integer("padding", 4, 0, 1024);
    else if (spec.name == "random_horizontal_flip")
      transforms.random_horizontal_flip = reader.number("p", 0.5, 0, 1);
    else
      usage(recipe, "data.transforms",
            fmt::format("data.transforms knows random_crop, random_horizontal_flip. Got '{}'.",
                        spec.name));
    reader.finish();
  }
  return transforms;
}

// Published weights expect the normalization that they were trained with, which a recipe may set in
// place of the data set's own.
std::optional<data::Normalization> read_normalization(const Recipe& recipe, int64_t channels) {
  if (!recipe.has("data.mean")) return std::nullopt;
  const std::vector<double>&mean = recipe.numbers("data.mean"), &std = recipe.numbers("data.std");
  for (std::string_view key : {"data.mean", "data.std"})
    if (const size_t got = recipe.numbers(key).size(); got != static_cast<size_t>(channels))
      usage(recipe, key,
            fmt::format("{} needs a number for each channel of the images, {}. Got {}.", key,
                        channels, got));
  if (std::ranges::min(std) == 0) usage(recipe, "data.std", "data.std must be above 0.");
  return data::Normalization{mean, std};
}

DataParts image_data(const Recipe& recipe) {
  auto load = [&](std::string_view split, int64_t classes = 0) {
    if (recipe.has("data.format"))
      return data::images_from_folder(recipe.text("data.format"), split,
                                      located(recipe.text("data.path")), classes);
    const std::string& name = recipe.text("data.dataset");
    return data::image_dataset(
        name, split,
        recipe.has("data.path") ? located(recipe.text("data.path")) : folder_of_data(name));
  };
  data::ImageDataset train = load("train").transform(read_transforms(recipe));
  data::ImageDataset test = load("test", train.classes());
  if (train.image_shape() != test.image_shape())
    throw Error(ErrorKind::data, "[data] training images are {}, those for evaluation {}.",
                to_string(train.image_shape()), to_string(test.image_shape()));
  if (const auto normalization = read_normalization(recipe, train.image_shape()[0])) {
    train = train.normalize(*normalization);
    test = test.normalize(*normalization);
  }
  TaskShape shape{InputKind::images, train.image_shape(), train.classes()};
  return {Task::classification, shape, std::nullopt, train.source(), test.source()};
}

data::AdditionOptions addition_options(const Recipe& recipe) {
  return {.digits = static_cast<int>(recipe.integer("data.digits")),
          .reversed = recipe.flag("data.reversed")};
}

constexpr int64_t addition_tests = 1000;  // held-out sums of an evaluation

DataParts addition_data(const Recipe& recipe) {
  data::AdditionOptions options = addition_options(recipe);
  io::Vocabulary vocabulary = data::addition_vocabulary();
  TaskShape shape{InputKind::tokens, {data::addition_length(options) - 1}, vocabulary.size()};
  auto train = data::addition_train(options);
  options.size = addition_tests;
  return {Task::causal_lm, shape, vocabulary, train, data::addition_test(options)};
}

constexpr int64_t random_tests = 1000;  // samples of an evaluation

DataParts random_data(const Recipe& recipe) {
  data::SyntheticOptions train{.classes = recipe.integer("data.classes"),
                               .seed = recipe.integer("seed")};
  data::SyntheticOptions test = train;
  test.size = random_tests;
  if (recipe.text("data.dataset") == "random-images") {
    int64_t side = recipe.integer("data.image_size");
    TaskShape shape{InputKind::images, {3, side, side}, train.classes};
    return {Task::classification, shape, std::nullopt,
            data::random_images("train", shape.input, train),
            data::random_images("test", shape.input, test)};
  }
  int64_t seq_len = recipe.integer("data.seq_len");
  TaskShape shape{InputKind::tokens, {seq_len}, train.classes};
  const bool of_samples = recipe.text("task") == name(Task::classification);
  if (of_samples) {
    train.labels = test.labels = recipe.integer("data.labels");
    shape = {InputKind::tokens, {seq_len}, train.labels, train.classes};
  }
  return {of_samples ? Task::classification : Task::causal_lm, shape, std::nullopt,
          data::random_tokens("train", seq_len, train), data::random_tokens("test", seq_len, test)};
}

TaskShape text_shape(const Recipe& recipe, const io::Vocabulary& vocabulary) {
  return {InputKind::tokens, {recipe.integer("data.seq_len")}, vocabulary.size()};
}

DataParts text_data(const Recipe& recipe, const std::optional<io::Vocabulary>& vocabulary) {
  const bool evaluated = recipe.has("data.val_path") || recipe.number("data.val_split") > 0;
  for (const char* key : {"eval.early_stopping", "eval.target", "checkpoint.best"})
    if (!evaluated && recipe.has(key))
      usage(recipe, key,
            fmt::format("{} needs data to evaluate on. Hint: data.val_split: 0.1, or "
                        "data.val_path.",
                        key));
  std::string_view tokenizer = recipe.text("data.tokenizer");
  if (tokenizer == "auto") tokenizer = "characters";
  data::TextDataset text =
      data::text(located(recipe.text("data.path")),
                 {.tokenizer = tokenizer,
                  .val_path = recipe.has("data.val_path") ? located(recipe.text("data.val_path"))
                                                          : std::string(),
                  .val_split = recipe.number("data.val_split"),
                  .vocabulary = vocabulary});
  int64_t seq_len = recipe.integer("data.seq_len");
  return {Task::causal_lm, text_shape(recipe, text.vocabulary), text.vocabulary,
          text.train.random_windows(seq_len),
          evaluated ? text.validation.windows(seq_len) : nullptr};
}

bool is_addition(const Recipe& recipe) {
  return recipe.has("data.dataset") && recipe.text("data.dataset") == "addition";
}
bool is_random(const Recipe& recipe) {
  return recipe.has("data.dataset") && recipe.text("data.dataset").starts_with("random-");
}
bool is_text(const Recipe& recipe) {
  return recipe.has("data.format") && recipe.text("data.format") == "text";
}

// Some tokens are to be guessed; one more than the vocabulary has stands for them.
void mask_tokens(const Recipe& recipe, DataParts& parts) {
  if (parts.task != Task::causal_lm || is_addition(recipe))
    usage(recipe, "task", "task masked_lm needs text or random-tokens.");
  double probability = recipe.number("data.mlm_probability");
  if (probability == 0)
    usage(recipe, "data.mlm_probability", "data.mlm_probability must be above 0.");
  data::MaskOptions options{
      .vocabulary = parts.shape.classes, .mask = parts.shape.classes, .probability = probability};
  for (auto* source : {&parts.train, &parts.validation})
    if (*source != nullptr) *source = data::masked(*source, options);
  parts.task = Task::masked_lm;
  ++parts.shape.classes;
}

DataParts describe_data(const Recipe& recipe, const ExperimentOptions& options) {
  DataParts parts;
  if (!options.with_data && is_text(recipe)) {
    if (!options.vocabulary)
      throw Error(ErrorKind::usage, "a language model without its data needs a vocabulary.");
    parts = {Task::causal_lm, text_shape(recipe, *options.vocabulary), options.vocabulary, {}, {}};
  } else if (is_text(recipe)) {
    parts = text_data(recipe, options.vocabulary);
  } else {
    parts = is_addition(recipe) ? addition_data(recipe)
            : is_random(recipe) ? random_data(recipe)
                                : image_data(recipe);
  }
  if (recipe.text("task") == name(Task::masked_lm)) mask_tokens(recipe, parts);
  if (!options.with_data) parts.train = parts.validation = nullptr;
  const std::string& wanted = recipe.text("task");
  if (wanted != "auto" && wanted != name(parts.task))
    usage(recipe, "task",
          fmt::format("task is {} with these data. Got {}. Hint: task: auto.", name(parts.task),
                      wanted));
  if (!recipe.transforms().empty() && parts.shape.kind != InputKind::images)
    usage(recipe, "data.transforms", "data.transforms are for images.");
  if (recipe.has("data.mean") && (parts.shape.kind != InputKind::images || is_random(recipe)))
    usage(recipe, "data.mean", "data.mean and data.std are for images that are read.");
  return parts;
}

optim::Schedule make_schedule(const Recipe& recipe, int64_t total_steps) {
  const std::string& name = recipe.text("scheduler.name");
  int64_t warmup = recipe.integer("scheduler.warmup_steps");
  bool by_ratio = warmup == 0;
  if (by_ratio)
    warmup = static_cast<int64_t>(recipe.number("scheduler.warmup_ratio") *
                                  static_cast<double>(total_steps));
  int64_t left = total_steps - warmup, decay = recipe.integer("scheduler.decay_steps");
  if ((name == "linear" || name == "cosine" || name == "wsd") && left <= 0)
    usage(recipe, by_ratio ? "scheduler.warmup_ratio" : "scheduler.warmup_steps",
          fmt::format(
              "scheduler.{} must leave some of the {} steps of the run to {}. Got {}. Hint: "
              "--scheduler.warmup_ratio 0.05.",
              by_ratio ? "warmup_ratio" : "warmup_steps", total_steps, name,
              by_ratio ? recipe.number("scheduler.warmup_ratio") : static_cast<double>(warmup)));
  if (name == "wsd" && decay > left)
    usage(recipe, "scheduler.decay_steps",
          fmt::format("scheduler.decay_steps is at most the {} steps after warmup. Got {}.", left,
                      decay));
  return optim::make_schedule(name, recipe.number("optimizer.lr"),
                              {.warmup = warmup,
                               .total = total_steps,
                               .min_lr = recipe.number("scheduler.min_lr"),
                               .decay = decay,
                               .every = recipe.integer("scheduler.step_size"),
                               .gamma = recipe.number("scheduler.gamma")});
}

optim::Rounding rounding_of(const Recipe& recipe) {
  if (!recipe.has("train.rounding")) return optim::Rounding::stochastic;
  constexpr std::string_view names[] = {"nearest", "stochastic", "kahan"};
  return static_cast<optim::Rounding>(std::ranges::find(names, recipe.text("train.rounding")) -
                                      std::begin(names));
}

std::unique_ptr<optim::Optimizer> make_optimizer(const Recipe& recipe,
                                                 std::vector<Variable> parameters,
                                                 int64_t total_steps) {
  const std::string& kind = recipe.text("optimizer.name");
  optim::OptimizerSettings settings{.lr = make_schedule(recipe, total_steps),
                                    .weight_decay = recipe.number("optimizer.weight_decay"),
                                    .rounding = rounding_of(recipe)};
  double momentum = recipe.number("optimizer.momentum");
  bool nesterov = recipe.flag("optimizer.nesterov");
  // Defaults of settings that the optimiser lacks are no mistake of the user's.
  if (kind == "sgd" || momentum != 0) settings.momentum = momentum;
  if (kind == "sgd" || nesterov) settings.nesterov = nesterov;
  if (kind != "sgd") {
    const std::vector<double>& betas = recipe.numbers("optimizer.betas");
    settings.betas = {betas[0], betas[1]};
    settings.eps = recipe.number("optimizer.eps");
  }
  if (recipe.text("optimizer.decay") == "matrices")
    settings.groups = {optim::no_decay_below_rank_2()};
  return optim::make_optimizer(kind, std::move(parameters), settings);
}

void count_steps(Experiment& experiment) {
  const Recipe& recipe = experiment.recipe;
  experiment.steps_per_epoch = experiment.train->size() / experiment.global_batch;
  if (experiment.steps_per_epoch == 0)
    usage(recipe, "train.global_batch_size",
          fmt::format("train.global_batch_size is at most the {} samples of an epoch. Got {}.",
                      experiment.train->size(), experiment.global_batch));
  experiment.total_steps = recipe.has("train.steps")
                               ? recipe.integer("train.steps")
                               : recipe.integer("train.epochs") * experiment.steps_per_epoch;
}

// The model, and the optimizer where there is something to train on.
void build(Experiment& experiment, bool initialize) {
  const Recipe& recipe = experiment.recipe;
  nn::BuildScope scope({.dtype = experiment.precision.parameters, .initialize = initialize});
  experiment.optimizer = nullptr;
  experiment.model = nullptr;
  experiment.model =
      recipe.has("model.name")
          ? make_model(recipe.text("model.name"), recipe.options("model.config"), experiment.shape)
          : make_layers_model(recipe.layers(), experiment.shape);
  if (experiment.train != nullptr)
    experiment.optimizer =
        make_optimizer(recipe, experiment.model->parameters(), experiment.total_steps);
  if (experiment.precision.products == Precision::fp16_mixed)
    experiment.loss_scale = std::make_unique<optim::LossScale>();
}

int64_t bytes_of(const std::vector<Variable>& variables) {
  int64_t bytes = 0;
  for (const Variable& variable : variables) bytes += static_cast<int64_t>(variable.type().bytes());
  return bytes;
}
}  // namespace

std::string_view name(Task task) {
  constexpr std::string_view names[] = {"classification", "causal_lm", "masked_lm"};
  return names[static_cast<size_t>(task)];
}

std::vector<Variable> Experiment::update_state() const {
  if (optimizer == nullptr) return {};
  std::vector<Variable> state = optimizer->state();
  if (loss_scale != nullptr)
    for (const Variable& variable : loss_scale->state()) state.push_back(variable);
  return state;
}
std::string Experiment::data_fingerprint() const {
  const uint64_t trained = train != nullptr ? train->fingerprint() : 0;
  const uint64_t evaluated = validation != nullptr ? validation->fingerprint() : 0;
  return trained == 0 ? "" : to_hex(hash_combine(trained, evaluated));
}
int64_t Experiment::model_bytes() const {
  return bytes_of(model->parameters()) + bytes_of(model->buffers());
}
int64_t Experiment::optimizer_bytes() const { return bytes_of(update_state()); }
int64_t Experiment::kept_model_bytes() const {
  return kept_bytes(model->parameters(), offload()) + kept_bytes(model->buffers(), offload());
}
int64_t Experiment::kept_optimizer_bytes() const { return kept_bytes(update_state(), offload()); }

Offload Experiment::offload() const {
  constexpr std::pair<std::string_view, Category> categories[] = {
      {"parameters", Category::parameter},
      {"optimizer", Category::optimizer_state},
      {"gradients", Category::gradient},
      {"activations", Category::activation}};
  Offload offload{.folder = recipe.text("train.offload_folder")};
  for (const auto& [name, category] : categories)
    if (std::ranges::find(recipe.texts("train.offload"), name) !=
        recipe.texts("train.offload").end())
      offload.categories.push_back(category);
  return offload;
}

size_t Experiment::data_bytes() const {
  size_t bytes = 0;
  if (train != nullptr)
    bytes +=
        train->bytes() + data::loader_bytes(*train, {.batch_size = global_batch, .shuffle = true});
  if (validation != nullptr)
    bytes += validation->bytes() + data::loader_bytes(*validation, {.batch_size = eval_batch});
  return bytes;
}

int64_t kept_bytes(const std::vector<Variable>& variables, const Offload& offload) {
  int64_t bytes = bytes_of(variables);
  for (const Variable& variable : variables)
    if (offload.covers(variable.category(), variable.type().bytes()))
      bytes -= static_cast<int64_t>(variable.type().bytes());
  return bytes;
}

namespace {
// Weights are made in the host's memory, and go to that of a device. State in files takes none; of
// a device, what is in files is with the host.
void check_host(const Experiment& experiment) {
  const int64_t kept = experiment.kept_optimizer_bytes(), weights = experiment.model_bytes();
  if (library(experiment.recipe.text("train.device")).on_host())
    return check_fits("the run does not fit: its weights and optimizer state",
                      static_cast<size_t>(weights + kept));
  const int64_t moved =
      weights - experiment.kept_model_bytes() + bytes_of(experiment.update_state()) - kept;
  check_fits("the run does not fit: its weights, and what is kept with the host,",
             static_cast<size_t>(weights + moved));
}
}  // namespace

Experiment make_experiment(const Recipe& recipe, const ExperimentOptions& options) {
  recipe.check();
  DataParts parts = describe_data(recipe, options);
  Experiment experiment{.recipe = recipe,
                        .task = parts.task,
                        .shape = parts.shape,
                        .vocabulary = parts.vocabulary,
                        .train = parts.train,
                        .validation = parts.validation,
                        .precision = *find_precision(recipe.text("train.precision")),
                        .global_batch = recipe.integer("train.global_batch_size")};
  if (is_addition(recipe)) experiment.addition = addition_options(recipe);
  experiment.micro_batch = recipe.has("train.micro_batch_size")
                               ? recipe.integer("train.micro_batch_size")
                               : experiment.global_batch;
  experiment.eval_batch =
      recipe.has("eval.batch_size") ? recipe.integer("eval.batch_size") : experiment.micro_batch;
  if (experiment.validation != nullptr)
    experiment.eval_batch = std::min(experiment.eval_batch, experiment.validation->size());

  manual_seed(recipe.integer("seed"));
  if (options.with_data) count_steps(experiment);
  if (options.initialize) {  // pages that nobody writes to take no memory
    build(experiment, false);
    check_host(experiment);
  }
  build(experiment, options.initialize);
  return experiment;
}

}  // namespace weft::train
