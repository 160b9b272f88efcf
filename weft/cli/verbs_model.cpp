// The verb that evaluates a trained model, by its checkpoint.
#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "weft/cli/evaluation_json.h"
#include "weft/cli/terminal.h"
#include "weft/cli/text_model.h"
#include "weft/cli/verbs.h"
#include "weft/io/json.h"
#include "weft/train/checkpoint.h"

namespace weft::cli {
namespace {
using nlohmann::json;
using train::Experiment;

struct EvalArguments {
  std::string checkpoint;
  RecipeFlags flags;
  bool as_json = false;
};

int run_eval(const EvalArguments& arguments, const RecipeFlags& more) {
  std::string folder = checkpoint_of(arguments.checkpoint);
  Experiment experiment = load_experiment(folder, joined(arguments.flags, more), true);
  train::Evaluation evaluation = train::evaluate(experiment);
  if (!std::isfinite(evaluation.loss))
    throw Error(ErrorKind::non_finite, "{}: the loss is not finite.", folder);
  if (arguments.as_json) {
    json result = to_json(evaluation);
    result["checkpoint"] = folder;
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
       .doc = "Evaluates a checkpoint: loss and accuracy on its validation data.",
       .examples =
           "weft eval mnist\nweft eval runs/mnist/checkpoints/step-00000938 --eval.batch_size 500",
       .run = [&program, arguments] { return run_eval(*arguments, program.flags); },
       .recipe_keys = true});
  verb.options = {
      {.type = "CHECKPOINT",
       .doc = "a checkpoint folder, or a run's folder or name",
       .target = &arguments->checkpoint,
       .required = true},
      short_flag(arguments->flags, "--device"),
      {.flag = "--json", .doc = "one JSON object instead of text", .target = &arguments->as_json}};
}
}  // namespace

void add_model_verbs(Program& program) { add_eval(program); }

}  // namespace weft::cli
