// Verbs that use a trained model, by its checkpoint: eval, generate.
#include <cmath>
#include <cstdio>
#include <optional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "weft/base/stopwatch.h"
#include "weft/cli/evaluation_json.h"
#include "weft/cli/recipe_arguments.h"
#include "weft/cli/terminal.h"
#include "weft/cli/verbs.h"
#include "weft/io/json.h"
#include "weft/train/checkpoint.h"
#include "weft/train/generate.h"

namespace weft::cli {
namespace {
using nlohmann::json;
using train::Experiment;
using train::Recipe;

// Resolves a checkpoint by its path, its run's folder, or its run's name.
std::string checkpoint_of(const std::string& name) {
  return train::verified_checkpoint(train::locate_run(name));
}

Experiment load_experiment(const std::string& folder, const RecipeFlags& flags, bool with_data) {
  Recipe recipe = train::checkpoint_recipe(folder);
  recipe.apply_environment();
  apply_flags(recipe, flags);
  Experiment experiment =
      train::make_experiment(recipe, {.initialize = false,
                                      .with_data = with_data,
                                      .vocabulary = train::checkpoint_vocabulary(folder)});
  train::load_model(folder, experiment);
  return experiment;
}

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

struct GenerateArguments {
  std::string checkpoint, prompt;
  RecipeFlags flags;
  train::GenerateOptions options;
  bool as_json = false;
};

// Warns of what the text does not show.
void explain(const Experiment& experiment, const std::string& prompt) {
  auto tokens = static_cast<int64_t>(experiment.vocabulary->encode(prompt).size());
  int64_t window = experiment.shape.input[0];
  if (tokens > window)
    remark("warning", fmt::format("the prompt has {} tokens. The model sees the last {} of them.",
                                  tokens, window));
  if (const auto& note = experiment.dataset->note) remark("note", note(experiment));
}

int run_generate(GenerateArguments arguments, const RecipeFlags& more) {
  if (arguments.options.stop == "\\n") arguments.options.stop = "\n";  // shells pass it so
  Experiment experiment =
      load_experiment(checkpoint_of(arguments.checkpoint), joined(arguments.flags, more), false);
  train::Generator generator(experiment, experiment.recipe.text("train.device"));
  int64_t tokens = 0;
  std::optional<Stopwatch> since_first;  // excludes the compilation of kernels
  double seconds = 0;
  auto write = [&](std::string_view piece) {
    if (++tokens == 1)
      since_first.emplace();
    else
      seconds = since_first->milliseconds() / 1000;
    if (arguments.as_json) return;
    if (tokens == 1) out(arguments.prompt);  // not printed for a refused prompt
    out(piece);
    std::fflush(stdout);
  };
  const std::string text = generator.generate(arguments.prompt, arguments.options, write);
  const double per_second = seconds > 0 ? static_cast<double>(tokens - 1) / seconds : 0;
  explain(experiment, arguments.prompt);
  if (arguments.as_json) {
    line(io::json_text(json{{"prompt", arguments.prompt},
                            {"text", text},
                            {"tokens", tokens},
                            {"tokens_per_second", per_second}}));
    return 0;
  }
  line(tokens == 0 ? arguments.prompt : "");
  constexpr int64_t enough = 10;  // tokens; fewer give no meaningful rate
  if (tokens >= enough && per_second > 0)
    remark("note", fmt::format("{} tokens, {} tok/s", tokens, train::count_text(per_second)));
  return 0;
}

void add_generate(Program& program) {
  auto arguments = std::make_shared<GenerateArguments>();
  Verb& verb = program.root.add(
      {.name = "generate",
       .group = "Runs",
       .doc = "Generates text from a language model: the prompt and its continuation.",
       .examples = "weft generate runs/shakespeare --prompt 'ROMEO:'\n"
                   "weft generate addition --prompt '123+045=' --temperature 0 --stop '\\n'",
       .run = [&program, arguments] { return run_generate(*arguments, program.flags); },
       .recipe_keys = true});
  train::GenerateOptions& options = arguments->options;
  verb.options = {
      {.type = "CHECKPOINT",
       .doc = "a checkpoint folder, or a run's folder or name",
       .target = &arguments->checkpoint,
       .required = true},
      {.flag = "--prompt",
       .type = "TEXT",
       .doc = "text to continue",
       .target = &arguments->prompt,
       .required = true,
       .may_be_empty = true},  // refused later with a better message
      {.flag = "--max-new-tokens",
       .type = "N",
       .doc = "tokens to generate (200)",
       .target = &options.max_new_tokens,
       .range = {{1, 0x1p40}}},
      {.flag = "--temperature",
       .type = "T",
       .doc = "sampling temperature; 0: always the most likely token (1)",
       .target = &options.temperature,
       .range = {{0.0, 100.0}}},
      {.flag = "--top-k",
       .type = "K",
       .doc = "sample from the K most likely tokens; 0: from all (0)",
       .target = &options.top_k,
       .range = {{0, 0x1p40}}},
      {.flag = "--top-p",
       .type = "P",
       .doc = "sample from the most likely tokens whose probabilities sum to P (1)",
       .target = &options.top_p,
       .range = {{0.0, 1.0}}},
      {.flag = "--seed",
       .type = "N",
       .doc = "random seed of the sampling (0)",
       .target = &options.seed,
       .range = {{0, 0x1p53}}},
      {.flag = "--stop",
       .type = "CHARACTER",
       .doc = "stop when this character is generated",
       .target = &options.stop,
       .may_be_empty = true},
      short_flag(arguments->flags, "--device"),
      {.flag = "--json", .doc = "one JSON object instead of text", .target = &arguments->as_json}};
}
}  // namespace

void add_model_verbs(Program& program) {
  add_eval(program);
  add_generate(program);
}

}  // namespace weft::cli
