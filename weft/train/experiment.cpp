#include "weft/train/experiment.h"

#include <algorithm>

#include "weft/base/logging.h"
#include "weft/base/memory/memory.h"
#include "weft/data/masked.h"
#include "weft/device/link.h"
#include "weft/device/registry.h"
#include "weft/io/files.h"
#include "weft/io/gguf.h"
#include "weft/models/decoder.h"
#include "weft/models/pretrained.h"
#include "weft/nn/module.h"
#include "weft/onnx/file/model.h"
#include "weft/optim/registry.h"
#include "weft/tensor/compile.h"
#include "weft/train/checkpoint/checkpoint.h"
#include "weft/train/methods/trainable.h"
#include "weft/train/task/imported.h"
#include "weft/train/task/published.h"
#include "weft/train/task/scoring.h"

namespace weft::train {
namespace {
// Sets up the masked tokens that the model predicts. A published encoder has a token that stands
// for them; elsewhere that is one id beyond the vocabulary.
void mask_tokens(const Recipe& recipe, const DataEntry& entry, const PublishedModel* published,
                 const DataOptions& read, TaskData& parts) {
  if (parts.task != Task::causal_lm || !entry.does_read(keys::data::mlm_probability))
    recipe.refuse(keys::task, "task masked_lm needs text or random-tokens.");
  double probability = recipe->data.mlm_probability;
  if (probability == 0)
    recipe.refuse(keys::data::mlm_probability, "data.mlm_probability must be above 0.");
  data::MaskOptions options{
      .vocabulary = parts.shape.classes, .mask = parts.shape.classes, .probability = probability};
  if (read.frame) {
    options.mask = published->mask_token(*parts.vocabulary->tokenizer());
    options.pad = read.frame->pad;
  } else {
    ++parts.shape.classes;
  }
  for (auto* source : {&parts.train, &parts.validation})
    if (*source != nullptr) *source = data::masked(*source, options);
  parts.task = Task::masked_lm;
}

// Checks that a published model can be trained on the data, and sets the number of its ids.
void fit_to(const PublishedModel& model, const Recipe& recipe, TaskData& parts) {
  const Task task = parts.labels                   ? Task::classification
                    : model.net.encoder != nullptr ? Task::masked_lm
                                                   : Task::causal_lm;
  if (parts.task != task)
    recipe.refuse(keys::model::pretrained,
                  fmt::format("model.pretrained: published {} are trained as {}. The task of these "
                              "data is {}.",
                              model.net.encoder != nullptr ? "encoders" : "models", name(task),
                              name(parts.task)));
  if (parts.vocabulary && parts.vocabulary->tokenizer() == nullptr)
    recipe.refuse(keys::model::pretrained,
                  "model.pretrained: the data must be text, which the model's tokenizer reads. "
                  "Hint: data.format: text.");
  const int64_t ids = model.net.vocabulary;
  if (parts.vocabulary) parts.vocabulary->tokenizer()->check_fits(ids);
  if (!parts.labels && parts.shape.classes > ids)
    recipe.refuse(keys::data::classes,
                  fmt::format("data.classes is at most the {} ids of the model. "
                              "Got {}.",
                              ids, parts.shape.classes));
  if (!parts.labels) parts.shape.classes = ids;
  if (parts.train != nullptr && model.net.decoder != nullptr)
    for (const std::string& what : model.net.decoder->decoder_config().unapplied)
      logging::warn("[{}] {}.", *recipe->model.pretrained, what);
  if (parts.shape.input[0] > model.net.context)
    recipe.refuse(keys::data::seq_len,
                  fmt::format("data.seq_len is at most the {} tokens of the "
                              "model's context. Got {}. Hint: --data.seq_len {}.",
                              model.net.context, parts.shape.input[0], model.net.context));
}

// Reads the data of the recipe's task. Encoders predict no next token, so their `auto` is
// masked_lm, but for texts with labels.
TaskData read_data(const Recipe& recipe, const DataEntry& entry, const PublishedModel* published,
                   const DataOptions& options) {
  const bool is_encoder = published != nullptr && published->net.encoder != nullptr;
  std::optional<Task> wanted = recipe->task;
  if (!wanted && is_encoder && !options.labels) wanted = Task::masked_lm;
  TaskData parts = entry.read(recipe, options);
  if (wanted == Task::masked_lm) mask_tokens(recipe, entry, published, options, parts);
  if (!options.with_data) parts.train = parts.validation = nullptr;
  if (wanted && wanted != parts.task)
    recipe.refuse(keys::task, fmt::format("the task of these data is {}. Got {}. Hint: task: auto.",
                                          name(parts.task), name(*wanted)));
  if (!recipe->data.transforms.empty() && parts.shape.kind != InputKind::images)
    recipe.refuse(keys::data::transforms, "data.transforms are for images.");
  if (recipe->data.mean && !entry.does_read(keys::data::mean))
    recipe.refuse(keys::data::mean, "data.mean and data.std apply only to images read from files.");
  if (published != nullptr) fit_to(*published, recipe, parts);
  if (parts.train != nullptr && parts.train->label_dtype() != labels_of(parts.task))
    recipe.refuse(
        recipe->data.format.has_value() ? keys::data::format : keys::data::dataset,
        fmt::format("data of task {} have {}. These have {}.", name(parts.task),
                    label_kind(labels_of(parts.task)), label_kind(parts.train->label_dtype())));
  return parts;
}

optim::Schedule make_schedule(const Recipe& recipe, int64_t total_steps) {
  const optim::ScheduleEntry& entry = registry::schedules().get(recipe->scheduler.name);
  int64_t warmup = recipe->scheduler.warmup_steps;
  bool by_ratio = warmup == 0;
  if (by_ratio)
    warmup =
        static_cast<int64_t>(recipe->scheduler.warmup_ratio * static_cast<double>(total_steps));
  int64_t left = total_steps - warmup, decay = recipe->scheduler.decay_steps;
  if (entry.ends && left <= 0)
    recipe.refuse(
        by_ratio ? keys::scheduler::warmup_ratio : keys::scheduler::warmup_steps,
        fmt::format("scheduler.{} must leave some of the {} steps of the run to {}. Got {}. Hint: "
                    "--scheduler.warmup_ratio 0.05.",
                    by_ratio ? "warmup_ratio" : "warmup_steps", total_steps, entry.name,
                    by_ratio ? recipe->scheduler.warmup_ratio : static_cast<double>(warmup)));
  if (entry.does_need(keys::scheduler::decay_steps) && decay > left)
    recipe.refuse(keys::scheduler::decay_steps,
                  fmt::format("scheduler.decay_steps is at most the {} steps after warmup. Got {}.",
                              left, decay));
  return {entry,
          recipe->optimizer.lr,
          {.warmup = warmup,
           .total = total_steps,
           .min_lr = recipe->scheduler.min_lr,
           .decay = decay,
           .every = recipe->scheduler.step_size,
           .gamma = recipe->scheduler.gamma,
           .keys = recipe.values(entry.keys)}};
}

std::unique_ptr<optim::Optimizer> make_optimizer(const Recipe& recipe,
                                                 std::vector<Variable> parameters,
                                                 int64_t total_steps) {
  const optim::OptimizerEntry& entry = registry::optimizers().get(recipe->optimizer.name);
  optim::OptimizerSettings settings{
      .lr = make_schedule(recipe, total_steps),
      .weight_decay = recipe->optimizer.weight_decay,
      .rounding = recipe->train.rounding.value_or(optim::Rounding::stochastic),
      .keys = recipe.values(entry.keys)};
  double momentum = recipe->optimizer.momentum;
  bool nesterov = recipe->optimizer.nesterov;
  // Defaults of settings that the optimizer lacks are not errors of the user.
  if (entry.has("momentum") || momentum != 0) settings.momentum = momentum;
  if (entry.has("nesterov") || nesterov) settings.nesterov = nesterov;
  const std::vector<double>& betas = recipe->optimizer.betas;
  if (entry.has("betas")) settings.betas = {betas[0], betas[1]};
  if (entry.has("eps")) settings.eps = recipe->optimizer.eps;
  if (recipe->optimizer.decay == WeightDecay::matrices)
    settings.groups = {optim::no_decay_below_rank_2()};
  return optim::make_optimizer(entry.name, std::move(parameters), settings);
}

// Returns the samples of each rank in a pass.
int64_t micro_batch(const Recipe& recipe, int64_t ranks) {
  const int64_t global = recipe->train.global_batch_size;
  const int64_t least = recipe->train.micro_batch_size.value_or(1) * ranks;
  if (global % least != 0)
    recipe.refuse(
        keys::train::global_batch_size,
        fmt::format("{} ranks cannot share train.global_batch_size equally{}. Got {}. Hint: {}{}.",
                    ranks,
                    recipe->train.micro_batch_size
                        ? fmt::format(", {} samples at a time", *recipe->train.micro_batch_size)
                        : "",
                    global, global < least ? "" : fmt::format("{} or ", global / least * least),
                    (global / least + 1) * least));
  return recipe->train.micro_batch_size.value_or(global / ranks);
}

void count_steps(Experiment& experiment) {
  const Recipe& recipe = experiment.recipe;
  experiment.steps_per_epoch = experiment.train->size() / experiment.global_batch;
  if (experiment.steps_per_epoch == 0)
    recipe.refuse(
        keys::train::global_batch_size,
        fmt::format("train.global_batch_size is at most the {} samples of an epoch. Got {}.",
                    experiment.train->size(), experiment.global_batch));
  experiment.total_steps = recipe->train.steps.has_value()
                               ? *recipe->train.steps
                               : *recipe->train.epochs * experiment.steps_per_epoch;
}

// `model` is null for one of a recipe's layers.
void check_packing(const Recipe& recipe, const Model* model) {
  if (model == nullptr || !model->separates_samples())
    recipe.refuse(packing_key,
                  "data.packing needs a model that keeps the samples of a row apart: a published "
                  "decoder, gpt or llama.");
}

// Builds the model, and the optimizer if it `trains`. `published` is the folder of a published
// model, or an ONNX file, whose contents are `net`; "": the model is not published. Weights that
// train are copies of the files, as a step assigns them all; weights that are only read are views.
// Returns how many classes the model tells apart.
int64_t build(Experiment& experiment, bool initialize, const std::string& published,
              const std::optional<onnx::Model>& net, bool trains) {
  const Recipe& recipe = experiment.recipe;
  nn::BuildScope scope({.dtype = experiment.precision.parameters, .initialize = initialize});
  experiment.methods.clear();
  experiment.optimizer = nullptr;
  experiment.model = nullptr;
  const bool packed = experiment.shape.packed;
  experiment.model =
      net ? make_imported(*net, experiment)
      : !published.empty()
          ? models::load_pretrained(published, {.dtype = experiment.precision.parameters,
                                                .map = !trains || recipe->adapter.type.has_value(),
                                                .weights = initialize,
                                                .hide_padding = true,
                                                .labels = head_of(experiment.labels)})
                .model
      : recipe->model.name.has_value()
          ? make_model(*recipe->model.name, recipe->model.config, experiment.shape)
      : packed ? nullptr  // which check_packing() refuses
               : make_layers_model(*recipe->model.layers, experiment.shape);
  if (packed) check_packing(recipe, experiment.model.get());
  const int64_t classes = net ? check_net(experiment, published) : experiment.shape.classes;
  if (initialize && recipe->model.weights) load_first_weights(recipe, *experiment.model);
  choose_trainable(recipe, *experiment.model);
  if (trains && initialize) warn_of_blocks(recipe, *experiment.model);
  experiment.methods = make_methods(experiment, {.initialize = initialize, .trains = trains});
  if (trains)
    experiment.optimizer = make_optimizer(recipe, experiment.trained(), experiment.total_steps);
  return classes;
}

// Checks that host memory suffices: weights are initialized there before they move to a device. The
// offloaded state of a host run is in files and takes no memory; the offloaded state of a device
// run is in host memory.
void check_host(const Experiment& experiment) {
  StateBlocks weights, update;
  for (const StateBill& bill : experiment.bills()) {
    StateBlocks& part = bill.purpose.precedes_arena ? weights : update;
    part = joined(std::move(part), bill.blocks);
  }
  const StateBlocks all = joined(weights, update);
  const Offload offload = offload_of(experiment.recipe);
  if (library(experiment.recipe->train.device).on_host())
    return check_fits("the run does not fit: its weights and optimizer state",
                      bytes_of(weights) + resident_bytes(update, offload));
  check_fits("the run does not fit: its weights, and what is offloaded to host memory,",
             bytes_of(weights) + bytes_of(all) - resident_bytes(all, offload));
}

// Returns the folder that a published model is built from, or the ONNX file; "" for any other
// model.
std::string published_source(const Recipe& recipe, const ExperimentOptions& options) {
  if (!recipe->model.pretrained) return "";
  const std::string& folder = *recipe->model.pretrained;
  if (trains_onnx(recipe)) {
    std::string file = onnx_file_of(recipe, options.checkpoint);
    if (!io::exists(file, ErrorKind::usage))
      recipe.refuse(
          keys::model::pretrained,
          fmt::format("model.pretrained: {}: there is no such file.", io::printable(file)));
    return file;
  }
  // An adapter's checkpoint has the adapter alone.
  if (!options.checkpoint.empty() && !recipe->adapter.type) return options.checkpoint;
  if (!io::is_gguf(folder) &&
      !io::exists(io::file_of_folder(folder, "config.json"), ErrorKind::usage))
    recipe.refuse(
        keys::model::pretrained,
        fmt::format("model.pretrained: {} is no folder of a model: it has no config.json.",
                    io::printable(folder)));
  return folder;
}

// Returns the tokenizer that is read for the data; "": `options` have one, or the data need none.
std::string tokenizer_to_read(const Recipe& recipe, const DataEntry& entry,
                              const ExperimentOptions& options) {
  if (options.vocabulary || !entry.does_read(keys::data::tokenizer)) return "";
  std::string tokenizer = tokenizer_of(recipe);
  if (tokenizer.empty() || io::exists(tokenizer)) return tokenizer;
  if (!options.checkpoint.empty()) return options.checkpoint;
  recipe.refuse(recipe->data.tokenizer ? keys::data::tokenizer : keys::model::pretrained,
                fmt::format("there is no tokenizer {}. Hint: data.tokenizer is auto, characters, "
                            "bytes, or the path of one.",
                            tokenizer));
}
}  // namespace

Graph forward_graph(const Model& model, const Type& batch) {
  const ModeScope inference(Mode::eval);
  const Tensor x = input(batch, 0);
  return {.inputs = {x}, .outputs = {model(Arg(x, UserLocation("", 0)))}, .assignments = {}};
}
Graph graph_of(const Experiment& experiment) {
  return forward_graph(*experiment.model, experiment.shape.batch(experiment.rows));
}

Experiment make_experiment(const Recipe& recipe, const ExperimentOptions& options) {
  recipe.check();
  const DataEntry& entry = data_entry(recipe);
  const std::string published = published_source(recipe, options);
  std::vector<io::FolderFile> files;
  DataOptions data{.with_data = options.with_data,
                   .vocabulary = options.vocabulary,
                   .tokenizer = options.checkpoint,
                   .evaluate_only = options.evaluate_only,
                   .checkpoint = options.checkpoint};
  if (const std::string tokenizer = tokenizer_to_read(recipe, entry, options); !tokenizer.empty()) {
    data.vocabulary = data::Tokenizer::load(tokenizer);
    data.tokenizer = tokenizer;
    files = tokenizer_files(tokenizer);
  } else if (!options.checkpoint.empty() && options.vocabulary) {
    files = tokenizer_files(options.checkpoint);  // none where the vocabulary is the text's own
  }
  std::optional<PublishedModel> model;
  std::optional<onnx::Model> net;
  if (!published.empty() && !trains_onnx(recipe)) {
    model.emplace(published, entry.has_labels);
    data.labels =
        model->label_options(recipe, options.evaluate_only || !options.checkpoint.empty());
    data.frame = model->frame(data.vocabulary);
    if (files.empty() && options.initialize) files = tokenizer_files(published);
    std::ranges::move(generation_files(published), std::back_inserter(files));
  } else if (trains_onnx(recipe)) {
    net = onnx::read(published);
    if (entry.has_labels) read_labels(data, *net);
  }
  TaskData parts = read_data(recipe, entry, model ? &*model : nullptr, data);
  model.reset();
  std::ranges::move(parts.files, std::back_inserter(files));
  Experiment experiment{.recipe = recipe,
                        .dataset = &entry,
                        .loss = &loss_of(recipe, parts.task),
                        .metrics = metrics_of(recipe, entry, parts.task),
                        .task = parts.task,
                        .shape = parts.shape,
                        .vocabulary = parts.vocabulary,
                        .labels = parts.labels,
                        .class_names = parts.class_names,
                        .train = parts.train,
                        .validation = parts.validation,
                        .precision = *find_precision(recipe->train.precision),
                        .global_batch = recipe->train.global_batch_size,
                        .target_units = parts.target_units,
                        .checkpoint_files = std::move(files)};
  experiment.mesh = options.mesh;
  if (const std::optional<std::string>& link = recipe->parallel.link; link && options.mesh) {
    Mesh joined = *options.mesh;
    joined.link = find_link(*link);
    experiment.mesh = std::make_shared<Mesh>(std::move(joined));
  }
  experiment.micro_batch = micro_batch(recipe, experiment.ranks());
  experiment.eval_batch =
      recipe->eval.batch_size.has_value() ? *recipe->eval.batch_size : experiment.micro_batch;
  if (experiment.validation != nullptr)
    experiment.eval_batch =
        std::min(experiment.eval_batch,
                 (experiment.validation->size() + experiment.ranks() - 1) / experiment.ranks());
  // A checkpoint is loaded to be evaluated where nobody initializes its model.
  const bool trains = experiment.train != nullptr && !options.evaluate_only &&
                      (options.initialize || options.checkpoint.empty());
  experiment.rows = trains ? experiment.micro_batch : experiment.eval_batch;

  manual_seed(recipe->seed);
  if (trains) count_steps(experiment);
  if (options.initialize) {  // untouched pages take no memory
    build(experiment, false, published, net, trains);
    check_host(experiment);
  }
  const bool goes_on = !options.checkpoint.empty() && (!published.empty() || recipe->model.weights);
  if (const int64_t classes =
          build(experiment, options.initialize && !goes_on, published, net, trains);
      classes > experiment.shape.classes)
    logging::warn("{} tells {} classes apart, and these data have {}.", io::printable(published),
                  classes, experiment.shape.classes);
  if (net && (trains || !options.checkpoint.empty()))
    add_imported_files(experiment, published, options.checkpoint);
  return experiment;
}

}  // namespace weft::train
