// Implements the verbs that run a recipe: plan, train, finetune.
#include <algorithm>
#include <csignal>
#include <filesystem>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "weft/cli/measure/peaks.h"
#include "weft/cli/outputs.h"
#include "weft/cli/recipes/recipe_arguments.h"
#include "weft/cli/show/evaluation_json.h"
#include "weft/cli/show/explain.h"
#include "weft/cli/show/svg.h"
#include "weft/cli/show/terminal.h"
#include "weft/cli/verbs/finetune.h"
#include "weft/cli/verbs/plan_inference.h"
#include "weft/cli/verbs/plan_on.h"
#include "weft/cli/verbs/verbs.h"
#include "weft/device/catalogue.h"
#include "weft/device/registry.h"
#include "weft/io/files.h"
#include "weft/io/json.h"
#include "weft/ir/plan.h"
#include "weft/models/pretrained.h"
#include "weft/train/checkpoint/checkpoint.h"
#include "weft/train/plan/precision.h"
#include "weft/train/run/signals.h"
#include "weft/train/run/trainer.h"

namespace weft::cli {
namespace {
using nlohmann::json;
using train::Recipe;

// ---- plan

struct PlanArguments : RecipeArguments {
  int depth = 2;
  std::string dot, memory_svg, on, tokens;
  bool explain = false, as_json = false;
  // These are options of published models.
  InferenceFlags model;
};

void remark_on_precision(const Recipe& recipe) {
  const DType products = train::find_precision(recipe->train.precision)->product_type();
  const std::string& device = recipe->train.device;
  const std::string lack = library(device).on_host()
                               ? lacks_instructions(products, cpu::this_machine())
                               : lacks_instructions(products, machine_spec(device));
  if (!lack.empty()) remark("note", lack);
}

// Prints a note for a plan without times.
void remark_on_times(const Recipe& recipe, const MachineSpec& machine) {
  const std::string& device = recipe->train.device;
  if (machine.known() || library(device).on_host()) return;
  remark("note",
         machine.name.empty()
             ? fmt::format("no time estimates: this machine has no device {}. Hint: --on h200 "
                           "plans for a GPU that is not here (weft list gpus).",
                           device)
             : fmt::format("no time estimates: the peaks of {} are not known.", machine.name));
}

// Prints the table of a refusal before its line.
template <class Function>
auto with_table(bool as_json, Function function) {
  try {
    return function();
  } catch (const train::DoesNotFit& refusal) {
    if (!as_json) show(refusal.table);
    throw;
  }
}

int plan(const Program& program, Recipe recipe, const PlanArguments& arguments) {
  if (!arguments.tokens.empty()) {
    for (const RecipeFlag& flag : joined(arguments.flags, program.flags))
      if (flag.path == keys::train::steps || flag.path == keys::train::epochs)
        throw Error(ErrorKind::usage, "--tokens and {} both set how long the run is.", flag.flag);
    train_on_tokens(recipe, arguments.tokens);
  }
  const std::vector<std::string> devices =
      arguments.on.empty() ? std::vector<std::string>() : devices_on(arguments.on);
  if (devices.size() > 1) {
    if (arguments.explain || !arguments.dot.empty() || !arguments.memory_svg.empty())
      throw Error(ErrorKind::usage,
                  "--explain, --dot and --memory-svg describe one plan. Got --on {}.",
                  arguments.on);
    const PlansOn plans = plans_on(recipe, devices, arguments.as_json);
    if (arguments.as_json)
      line(plans.text);
    else
      show(plans.text);
    return plans.any_fits ? 0 : static_cast<int>(ErrorKind::does_not_fit);
  }
  if (!devices.empty()) recipe.set(keys::train::device, devices.front(), "--on");
  remark_on_precision(recipe);
  const MachineSpec machine = machine_spec(recipe->train.device);
  remark_on_times(recipe, machine);
  const auto planned =
      with_table(arguments.as_json, [&] { return train::plan_run(recipe, machine); });
  check_outputs_not_read(program);
  if (const std::string text = train::left_out_text(planned->report); !text.empty())
    remark("note", text + ".");
  if (!arguments.dot.empty()) {
    std::string graphs;
    for (const PlannedStep& step : planned->report.plans) graphs += to_dot(*step.graph);
    io::write_file_atomically(arguments.dot, graphs);
  }
  if (!arguments.memory_svg.empty()) {
    std::vector<NamedPlan> plans;
    for (const PlannedStep& step : planned->report.plans)
      plans.push_back({step.name, step.plan.get()});
    io::write_file_atomically(arguments.memory_svg, memory_svg(plans, planned->report.model));
  }
  if (arguments.as_json) {
    json report = io::parse_json(train::to_json(planned->report));
    if (arguments.explain)
      report["explain"] = io::parse_json(cli::to_json(explain(planned->question, planned->report)));
    line(io::json_text(report, 2));
    return 0;
  }
  show(to_table(planned->report));
  for (const PlannedStep& step : planned->report.plans) {
    line(fmt::format("\n{} by module:", step.name));
    show(train::to_table(cost_by_module(*step.plan, arguments.depth)));
  }
  if (arguments.explain)
    for (const Explanation& explanation : explain(planned->question, planned->report))
      show("\n" + to_table(explanation));
  return 0;
}

// --on names the machines to plan for, --device a device of this machine.
void check_device(const PlanArguments& arguments, const RecipeFlags& more) {
  for (const RecipeFlag& flag : joined(arguments.flags, more)) {
    if (flag.path != keys::train::device) continue;
    if (!arguments.on.empty())
      throw Error(ErrorKind::usage, "--on and {} both say what to plan for.", flag.flag);
    const size_t name = flag.value.find(':') + 1;
    if (flag.value.starts_with("cuda:") && find_gpu(flag.value.substr(name)) != nullptr)
      throw Error(ErrorKind::usage, "{} {} names a GPU to plan for. Hint: --on {}.", flag.flag,
                  flag.value, flag.value.substr(name));
  }
}

// Plans the inference of a published model.
int plan_published(const PlanArguments& arguments, const RecipeFlags& more) {
  InferenceOptions options =
      inference_options("plan", arguments.recipe, joined(arguments.flags, more), arguments.model);
  if (arguments.explain || !arguments.dot.empty() || !arguments.memory_svg.empty() ||
      !arguments.tokens.empty())
    throw Error(ErrorKind::usage,
                "--explain, --dot, --memory-svg and --tokens are for recipes. {} is a model.",
                arguments.recipe);
  const std::vector<std::string> devices =
      arguments.on.empty() ? std::vector<std::string>() : devices_on(arguments.on);
  if (devices.size() == 1) options.device = devices.front();
  const InferencePlans plans =
      devices.size() > 1 ? plan_inference_on(options, devices, arguments.as_json)
                         : InferencePlans{plan_inference(options, arguments.as_json), true};
  if (arguments.as_json)
    line(plans.text);
  else
    show(plans.text);
  return plans.any_fits ? 0 : static_cast<int>(ErrorKind::does_not_fit);
}

void add_plan(Program& program) {
  auto arguments = std::make_shared<PlanArguments>();
  Verb& verb = program.root.add(
      {.name = "plan",
       .group = "Runs",
       .doc =
           "Shows what a run, or a published model, needs before it starts: memory, FLOPs, time.",
       .examples = "weft plan recipes/mnist.yaml\nweft plan gpt.yaml --batch 64 --json\n"
                   "weft plan shakespeare --explain\n"
                   "weft plan llama --on h100,a100,rtx4090 --tokens 1B\n"
                   "weft plan models/Llama-3.2-1B --context 8192 --on rtx4090\n"
                   "weft plan resnet50.onnx --batch 8 --on h100,a100",
       .run =
           [&program, arguments] {
             check_device(*arguments, program.flags);
             if (is_inference_model(arguments->recipe))
               return plan_published(*arguments, program.flags);
             Recipe recipe = recipe_of(program, *arguments, "plan");
             refuse_model_flags(arguments->model);
             return plan(program, std::move(recipe), *arguments);
           },
       .recipe_keys = true});
  verb.options = {
      {.type = "RECIPE",
       .doc = "YAML file, - for standard input, the name of a recipe, the folder of a run or "
              "checkpoint, or a model (its folder, a GGUF file, or an ONNX file), whose generation "
              "of text, or forward pass, is planned",
       .target = &arguments->recipe},
      {.flag = "--depth",
       .type = "N",
       .doc = "levels of module names in the table",
       .target = &arguments->depth,
       .range = {{1, 16}}},
      {.flag = "--dot",
       .type = "FILE",
       .doc = "write the graph of each step (Graphviz)",
       .target = &arguments->dot,
       .written = true},
      {.flag = "--on",
       .type = "GPU,...",
       .doc = "GPUs to plan for (weft list gpus), or cpu; several print a comparison table",
       .target = &arguments->on},
      {.flag = "--tokens",
       .type = "N",
       .doc = "train on this many tokens: 300M, 1B",
       .target = &arguments->tokens},
      {.flag = "--explain",
       .doc = "show what each compiler pass saved, and why values are stored instead of fused",
       .target = &arguments->explain},
      {.flag = "--memory-svg",
       .type = "FILE",
       .doc = "plot memory over the kernels of the largest step (SVG)",
       .target = &arguments->memory_svg,
       .written = true},
      {.flag = "--json", .doc = "one JSON object instead of text", .target = &arguments->as_json}};
  std::ranges::move(model_options(arguments->model), std::back_inserter(verb.options));
  add_short_flags(verb, *arguments);
}

// ---- train

struct TrainArguments : PlanArguments {
  train::TrainOptions options;
  bool dry_run = false;
};

int run_train(const Program& program, const Recipe& recipe, const TrainArguments& arguments) {
  if (arguments.dry_run) return plan(program, recipe, arguments);
  const train::Signals signals;  // before the machine is measured, which takes seconds
  remark_on_precision(recipe);
  train::TrainOptions options = arguments.options;
  options.machine = machine_spec(recipe->train.device);
  options.quiet = arguments.as_json;
  std::signal(SIGXFSZ, SIG_IGN);  // exceeding a file size limit becomes a write error
  std::signal(SIGPIPE, SIG_IGN);  // a closed pipe ends the lines, not the run
  const train::TrainResult result =
      with_table(arguments.as_json, [&] { return train::train(recipe, options); });
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
  add_plan(program);
  add_train(program);
  add_finetune(program);
}

}  // namespace weft::cli
