// A run as MODEL, or a checkpoint of one.
#include <algorithm>
#include <memory>
#include <utility>

#include "weft/base/error.h"
#include "weft/cli/models/array_model.h"
#include "weft/cli/models/model_kind.h"
#include "weft/cli/models/onnx_output.h"
#include "weft/cli/models/tensor_list.h"
#include "weft/cli/models/text_model.h"
#include "weft/io/files.h"
#include "weft/models/pretrained.h"
#include "weft/train/checkpoint/checkpoint.h"
#include "weft/train/methods/quantization.h"
#include "weft/train/run/steps.h"
#include "weft/train/task/imported.h"

namespace weft::cli {
namespace {
ArrayModel run_arrays(const std::string& name, const ArrayModelOptions& options) {
  auto run = std::make_shared<train::Experiment>(
      load_experiment(checkpoint_of(name), options.flags, /*with_data=*/false));
  ArrayModel model =
      forward_model(name, {.owner = run,
                           .model = run->model.get(),
                           .shape = run->shape,
                           .dtype = run->precision.parameters,
                           .options = train::step_options(*run, run->recipe->train.device)});
  model.gives_logits = run->task == train::Task::classification;
  model.class_names = run->class_names;
  if (run->shape.kind == InputKind::images) model.pictures = run->recipe;
  return model;
}

ExportSubject run_subject(const OnnxOutput& output) {
  refuse_flag(!output.dims.empty(), "--dim", "ONNX files", output.model);
  refuse_flag(output.dtype.has_value(), "--dtype with --to onnx", "published models", output.model);
  auto run = std::make_shared<train::Experiment>(
      load_experiment(checkpoint_of(output.model), {}, /*with_data=*/false));
  TaskShape shape = run->shape;
  const bool reads_tokens = shape.kind == InputKind::tokens;
  if (reads_tokens) shape.input = {checked_context(output.context, shape.input[0])};
  const onnx::Ends ends = ends_of(*run->model, shape.kind);
  ExportSubject subject{
      .owner = run,
      .module = run->model.get(),
      .build = forward_of(*run->model, [shape](int64_t batch) { return shape.batch(batch); }),
      .inputs = {ends.samples},
      .outputs = {ends.logits},
      .context = reads_tokens ? shape.input[0] : 0};
  if (const auto* const quantized = train::quantization_of(*run))
    subject.learned = quantized->scheme();
  return subject;
}

train::Experiment run_evaluation(const std::string& name, const RecipeFlags& flags,
                                 const EvaluationWords&) {
  return load_experiment(checkpoint_of(name), flags, /*with_data=*/true);
}

std::string tuned_checkpoint(const std::string& name) {
  const std::string run = train::locate_run(name);
  if (!io::exists(run, ErrorKind::usage))
    throw Error(ErrorKind::usage, "{}: no such model, run or recipe. Hint: weft list recipes.",
                io::printable(name));
  if (!train::is_checkpoint_or_run(run))
    throw Error(ErrorKind::usage,
                "{} is no folder of a model, which has a config.json, and no run of weft's.",
                io::printable(name));
  std::string checkpoint = train::verified_checkpoint(run);
  const train::Recipe recipe = train::checkpoint_recipe(checkpoint);
  if (recipe->adapter.type)
    throw Error(ErrorKind::usage,
                "{0} has an adapter, without the weights that it adapts. Hint: weft merge {0} OUT, "
                "then weft finetune OUT.",
                io::printable(name));
  if (!recipe->model.pretrained)
    throw Error(ErrorKind::usage,
                "{0} is a run of weft's own, and published models are tuned. Hint: weft convert "
                "{0} OUT --to hf, then weft finetune OUT, for a gpt or llama.",
                io::printable(name));
  return checkpoint;
}

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

// Loads the base of an adapter's checkpoint where the run had it, or where a flag says.
TextModel adapted(const train::Recipe& recipe, TextModelOptions options,
                  const std::string& checkpoint) {
  std::string base = *recipe->model.pretrained;
  std::erase_if(options.flags, [&](const RecipeFlag& flag) {
    if (flag.path != keys::model::pretrained) return false;
    base = flag.value;
    return true;
  });
  if (&train::format_of(base) != &train::published_format)
    throw Error(ErrorKind::usage,
                "{} adapts {}, which is no published model. Hint: --model.pretrained FOLDER.",
                checkpoint, io::printable(base));
  return published_text(base, options, checkpoint);
}

bool generates(const std::string& name) {
  const std::string checkpoint = checkpoint_of(name);
  const train::Recipe recipe = train::checkpoint_recipe(checkpoint);
  if (recipe->model.pretrained && !train::trains_onnx(recipe))
    return published_kind.generates(recipe->adapter.type ? *recipe->model.pretrained : checkpoint);
  const train::Experiment experiment = load_experiment(checkpoint, {}, false);
  return experiment.task == train::Task::causal_lm && experiment.vocabulary.has_value();
}

TextModel run_text_model(const std::string& name, const TextModelOptions& options) {
  const std::string checkpoint = checkpoint_of(name);
  // A checkpoint of a published model is a folder of a published model, too.
  const train::Recipe recipe = train::checkpoint_recipe(checkpoint);
  if (recipe->adapter.type) {
    if (!options.adapter.empty())
      throw Error(ErrorKind::usage, "{} has an adapter of its own. Hint: {} --adapter {}.", name,
                  *recipe->model.pretrained, options.adapter);
    return adapted(recipe, options, checkpoint);
  }
  if (recipe->model.pretrained && !train::trains_onnx(recipe))
    return published_text(checkpoint, options, "");
  if (options.dtype || !options.adapter.empty())
    throw Error(ErrorKind::usage, "{} is for published models. {} is a run of weft's own.",
                options.dtype ? "--dtype" : "--adapter", name);
  return text_model_of(load_experiment(checkpoint, options.flags, false));
}
}  // namespace

constinit const ModelKind run_kind{.format = train::run_format,
                                   .tensors = weight_tensors,
                                   .tuned = tuned_checkpoint,
                                   .generates = generates,
                                   .arrays = run_arrays,
                                   .subject = run_subject,
                                   .evaluation = run_evaluation,
                                   .text_model = run_text_model};

}  // namespace weft::cli
