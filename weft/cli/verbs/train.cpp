// Implements the verbs that train: train, finetune.
#include <algorithm>
#include <csignal>
#include <filesystem>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "weft/cli/measure/peaks.h"
#include "weft/cli/show/evaluation_json.h"
#include "weft/cli/verbs/finetune.h"
#include "weft/cli/verbs/plan.h"
#include "weft/cli/verbs/verbs.h"
#include "weft/device/world.h"
#include "weft/io/files.h"
#include "weft/io/json.h"
#include "weft/train/checkpoint/checkpoint.h"
#include "weft/train/run/ranks.h"
#include "weft/train/run/signals.h"

namespace weft::cli {
namespace {
using nlohmann::json;
using train::Recipe;

struct TrainArguments : PlanArguments {
  train::TrainOptions options;
  bool dry_run = false;
};

int run_train(const Program& program, const Recipe& recipe, const TrainArguments& arguments) {
  if (arguments.dry_run) return plan(program, recipe, arguments);
  train::must_suit_world(recipe);  // before a device is opened, which may fail on its own
  const train::Signals signals;    // before the machine is measured, which takes seconds
  remark_on_precision(recipe);
  train::TrainOptions options = arguments.options;
  // Measuring takes the whole machine, and only rank 0 reports planned times.
  if (world().rank() == 0) options.machine = machine_spec(recipe->train.device);
  options.quiet = arguments.as_json;
  std::signal(SIGXFSZ, SIG_IGN);  // exceeding a file size limit becomes a write error
  std::signal(SIGPIPE, SIG_IGN);  // a closed pipe ends the lines, not the run
  const train::TrainResult result =
      with_table(arguments.as_json, [&] { return train::train(recipe, options); });
  world().leave();  // while signals do not end a rank that waits for the others
  if (arguments.as_json) {
    json result_line{{"step", result.step},
                     {"run", result.run_folder},
                     {"checkpoint", result.checkpoint},
                     {"exit_code", result.exit_code},
                     {"train_loss", result.train_loss ? json(*result.train_loss) : json()}};
    const json evaluation = cli::to_json(result.evaluation);
    for (const auto& [key, value] : evaluation.items()) result_line["eval_" + key] = value;
    line(io::json_text(result_line));
  }
  return result.exit_code;
}

// Replaces a run by its recipe: a resumed run is named by its folder, or by its name where no
// recipe has that name.
void name_recipe_of_run(TrainArguments& arguments) {
  namespace fs = std::filesystem;
  const std::string& name = arguments.recipe;
  std::error_code none;
  if (!arguments.options.resume && fs::exists(fs::path(name) / "recipe.yaml", none) &&
      fs::is_directory(fs::path(name) / "checkpoints", none))
    throw Error(ErrorKind::usage, "{0} is a run. Hint: {0} --resume continues it.", name);
  if (!arguments.options.resume || name.empty()) return;
  fs::path run = train::locate_run(name, arguments.options.runs);
  auto has_its_name = [&](const fs::path& recipe) { return recipe.stem() == name; };
  const bool is_known = std::ranges::any_of(known_recipes(), has_its_name);
  if (run != name && is_known) return;
  if (!fs::exists(run / "recipe.yaml", none)) {
    if (is_known || name == "-" || io::exists(name, ErrorKind::usage)) return;
    throw Error(ErrorKind::usage, "{}: no such run, and no such recipe. Hint: weft runs ls.", name);
  }
  train::checkpoint_recipe(run.string());  // refuses non-recipes, such as a FIFO without a writer
  run = fs::canonical(run, none);
  for (const RecipeFlag& flag : arguments.flags)
    if (flag.path == keys::name && flag.value != run.filename())
      throw Error(ErrorKind::usage, "a resumed run keeps its name {}. Got {} {}.", name, flag.flag,
                  flag.value);
  std::erase_if(arguments.flags, [](const RecipeFlag& flag) { return flag.path == keys::name; });
  arguments.recipe = (run / "recipe.yaml").string();
  arguments.options.runs = run.parent_path().string();
  arguments.flags.push_back({"--name", std::string(keys::name), run.filename().string()});
}

// Adds a verb that trains. `subject` is its argument; `takes_models`: which may be a model.
void add_training_verb(Program& program, Verb described, Option subject, bool takes_models) {
  auto arguments = std::make_shared<TrainArguments>();
  described.group = "Runs";
  described.recipe_keys = true;
  described.on_ranks = true;
  described.run = [&program, arguments, takes_models, name = described.name] {
    if (takes_models && !arguments->options.resume) name_model_to_tune(*arguments, program.flags);
    name_recipe_of_run(*arguments);
    return run_train(program, recipe_of(program, *arguments, name), *arguments);
  };
  train::TrainOptions& options = arguments->options;
  subject.target = &arguments->recipe;
  Verb& verb = program.root.add(std::move(described));
  verb.options = {
      std::move(subject),
      {.flag = "--resume",
       .negatable = true,
       .doc = "continue from the latest checkpoint",
       .target = &options.resume},
      {.flag = "--overwrite",
       .negatable = true,
       .doc = "replace an earlier run of this name",
       .target = &options.overwrite,
       .excludes = "--resume"},
      {.flag = "--dry-run",
       .negatable = true,
       .doc = "only plan (weft plan)",
       .target = &arguments->dry_run},
      {.flag = "--runs", .type = "FOLDER", .doc = "folder of all runs", .target = &options.runs},
      {.flag = "--json", .doc = "one JSON object instead of text", .target = &arguments->as_json}};
  add_short_flags(verb, *arguments);
}

void add_train(Program& program) {
  add_training_verb(
      program,
      {.name = "train",
       .aliases = {"fit", "pretrain"},
       .doc = "Runs a recipe (aliases: fit, pretrain).",
       .examples = "weft train recipes/mnist.yaml\n"
                   "weft train addition --steps 500 --optimizer.lr 3e-3 --name quick\n"
                   "weft train --resume quick"},
      {.type = "RECIPE",
       .doc = "YAML file, - for standard input, the name of a recipe, or with --resume the name "
              "of a run"},
      /*takes_models=*/false);
}

void add_finetune(Program& program) {
  add_training_verb(
      program,
      {.name = "finetune",
       .doc =
           "Trains a published model further: weft train --model.pretrained MODEL, with defaults "
           "for weights that are trained already. They are data.format by the ending of "
           "data.path, data.seq_len 1024 or the context, one epoch, batches of 8, and a learning "
           "rate of 5e-5, or 2e-4 with an adapter.",
       .examples = "weft finetune models/SmolLM2-135M --data.path poems.txt\n"
                   "weft finetune llama-q4.gguf --adapter.type lora --data.path tasks.jsonl\n"
                   "weft finetune recipe.yaml --steps 500"},
      {.type = "MODEL",
       .doc = "a folder of Hugging Face's or a GGUF file, a checkpoint folder, a run's folder or "
              "name; or a recipe, as weft train takes it"},
      /*takes_models=*/true);
}
}  // namespace

void add_training_verbs(Program& program) {
  add_train(program);
  add_finetune(program);
}

}  // namespace weft::cli
