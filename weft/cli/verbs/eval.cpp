// Implements eval, which evaluates a trained model, by its checkpoint, or a published one, by its
// folder.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "weft/cli/models/model_kind.h"
#include "weft/cli/models/text_flags.h"
#include "weft/cli/models/text_model.h"
#include "weft/cli/show/evaluation_json.h"
#include "weft/cli/show/terminal.h"
#include "weft/cli/verbs/verbs.h"
#include "weft/io/json.h"
#include "weft/nn/block_activations.h"
#include "weft/train/checkpoint/checkpoint.h"

namespace weft::cli {
namespace {
using nlohmann::json;
using train::Experiment;

struct EvalArguments {
  std::string checkpoint, activations;
  RecipeFlags flags;
  bool as_json = false;
};

int run_eval(const EvalArguments& arguments, const RecipeFlags& more) {
  const RecipeFlags flags = joined(arguments.flags, more);
  const std::string& name = arguments.checkpoint;
  const ModelKind& kind = open_kind_of(name, "evaluated");
  const bool is_run = &kind == &run_kind;
  const Experiment experiment = kind.evaluation(name, flags, {});
  const std::string folder = is_run ? train::find_checkpoint(train::locate_run(name)) : name;
  const nn::BlockActivations scope(nn::BlockActivations::choose(
      *experiment.model, experiment.recipe->train.device,
      activations_of(arguments.activations, *experiment.model, arguments.checkpoint)));
  train::Evaluation evaluation = train::evaluate(experiment);
  if (!std::isfinite(evaluation.loss)) {
    if (const auto weights = kind.format.weights; weights != nullptr && !is_run)
      models::refuse_non_finite(weights(name, /*verify=*/false).files);
    throw Error(ErrorKind::non_finite, "{}: the loss is not finite.", folder);
  }
  if (arguments.as_json) {
    json result = cli::to_json(evaluation);
    if (experiment.shape.labels_tokens()) result["tokens"] = evaluation.count;
    result[is_run ? "checkpoint" : "model"] = folder;
    line(io::json_text(result));
    return 0;
  }
  std::string_view unit = experiment.dataset->unit;
  if (unit.empty())
    unit = experiment.shape.labels_tokens()             ? "tokens"
           : experiment.shape.kind == InputKind::images ? "images"
                                                        : "samples";
  line(fmt::format("{}\n{}  {} {}", folder, to_text(evaluation), evaluation.count, unit));
  return 0;
}

void add_eval(Program& program) {
  auto arguments = std::make_shared<EvalArguments>();
  Verb& verb = program.root.add(
      {.name = "eval",
       .group = "Runs",
       .doc = "Evaluates a model on its validation data: loss, and accuracy, perplexity or r2.",
       .examples =
           "weft eval mnist\nweft eval runs/mnist/checkpoints/step-00000938 --eval.batch_size 500\n"
           "weft eval models/gpt2 --data.path wiki.test.raw --data.seq_len 1024\n"
           "weft eval models/bert-reviews --data.path labelled.jsonl\n"
           "weft eval resnet20.onnx --data.dataset cifar10",
       .run = [&program, arguments] { return run_eval(*arguments, program.flags); },
       .recipe_keys = true});
  verb.options = {
      {.type = "CHECKPOINT",
       .doc = "a checkpoint folder, a run's folder or name, with --data.path the folder of a "
              "published model, or with data an ONNX file",
       .target = &arguments->checkpoint,
       .required = true},
      activations_option(arguments->activations),
      short_flag(arguments->flags, "--device"),
      {.flag = "--json", .doc = "one JSON object instead of text", .target = &arguments->as_json}};
}
}  // namespace

void add_eval_verb(Program& program) { add_eval(program); }

}  // namespace weft::cli
