#include "weft/cli/verbs/plan.h"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "weft/cli/estimate/training_estimate.h"
#include "weft/cli/measure/peaks.h"
#include "weft/cli/outputs.h"
#include "weft/cli/show/explain.h"
#include "weft/cli/show/svg.h"
#include "weft/cli/verbs/plan_on.h"
#include "weft/device/catalogue.h"
#include "weft/device/registry.h"
#include "weft/io/files.h"
#include "weft/io/json.h"
#include "weft/ir/plan.h"
#include "weft/train/plan/precision.h"

namespace weft::cli {
namespace {
using nlohmann::json;
using train::Recipe;

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

// --batch max is no value of a recipe: it asks for the largest batch that fits.
void take_largest_batch(PlanArguments& arguments) {
  const auto is_largest = [](const RecipeFlag& flag) {
    return flag.path == keys::train::global_batch_size && flag.value == "max";
  };
  if (std::erase_if(arguments.flags, is_largest) == 0) return;
  if (arguments.estimate.as.empty())
    throw Error(ErrorKind::usage, "--batch max is for estimates. Hint: --as weft.");
  arguments.estimate.largest_batch = true;
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

// Returns whether a flag asks for a description of one compiled plan.
bool describes_plan(const PlanArguments& arguments) {
  return arguments.explain || !arguments.dot.empty() || !arguments.memory_svg.empty();
}

// Plans the inference of a published model.
int plan_published(const PlanArguments& arguments, const RecipeFlags& more) {
  InferenceOptions options =
      inference_options("plan", arguments.recipe, joined(arguments.flags, more), arguments.model);
  if (describes_plan(arguments) || !arguments.tokens.empty() || !arguments.samples.empty())
    throw Error(ErrorKind::usage,
                "--explain, --dot, --memory-svg, --tokens and --samples are for recipes. {} is a "
                "model.",
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
}  // namespace

void remark_on_precision(const Recipe& recipe) {
  const DType products = train::find_precision(recipe->train.precision)->product_type();
  const std::string& device = recipe->train.device;
  const std::string lack = library(device).on_host()
                               ? lacks_instructions(products, cpu::this_machine())
                               : lacks_instructions(products, machine_spec(device));
  if (!lack.empty()) remark("note", lack);
}

namespace {
// Estimates the run as a program would train it, by formula.
int plan_as(const Recipe& recipe, const PlanArguments& arguments) {
  if (describes_plan(arguments))
    throw Error(ErrorKind::usage,
                "--explain, --dot and --memory-svg are for compiled plans. --as {} estimates.",
                arguments.estimate.as);
  if (arguments.on.empty())
    throw Error(ErrorKind::usage, "--as {} needs devices. Hint: --on h100x8 (weft list gpus).",
                arguments.estimate.as);
  const std::vector<RunEstimate> all =
      estimate_training(recipe, arguments.estimate, estimated_devices(arguments.on));
  const bool any_fits = std::ranges::any_of(all, &RunEstimate::fits);
  if (arguments.as_json) {
    line(estimate_json(all));
  } else {
    show(estimate_text(all));
    if (!any_fits && all.size() == 1)
      throw Error(ErrorKind::does_not_fit, "{}", misfit_text(all.front()));
  }
  return any_fits ? 0 : static_cast<int>(ErrorKind::does_not_fit);
}
}  // namespace

int plan(const Program& program, Recipe recipe, const PlanArguments& arguments) {
  if (!arguments.tokens.empty()) {
    for (const RecipeFlag& flag : joined(arguments.flags, program.flags))
      if (flag.path == keys::train::steps || flag.path == keys::train::epochs)
        throw Error(ErrorKind::usage, "--tokens and {} both set how long the run is.", flag.flag);
    train_on_tokens(recipe, arguments.tokens);
  }
  if (!arguments.samples.empty()) train_on_samples(recipe, arguments.samples);
  if (!arguments.estimate.as.empty()) return plan_as(recipe, arguments);
  const std::vector<std::string> devices =
      arguments.on.empty() ? std::vector<std::string>() : devices_on(arguments.on);
  if (devices.size() > 1) {
    if (describes_plan(arguments))
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

namespace {
// Flags of estimates say nothing of a compiled plan.
void check_estimate(const PlanArguments& arguments) {
  const EstimateFlags& flags = arguments.estimate;
  if (!flags.as.empty()) {
    if (is_inference_model(arguments.recipe))
      throw Error(ErrorKind::usage, "--as estimates the training of recipes. {} is a model.",
                  arguments.recipe);
    return;
  }
  const std::pair<std::string_view, const std::string&> given[] = {{"--products", flags.products},
                                                                   {"--method", flags.method},
                                                                   {"--deadline", flags.deadline},
                                                                   {"--budget", flags.budget}};
  for (const auto& [flag, value] : given)
    if (!value.empty())
      throw Error(ErrorKind::usage, "{} is for estimates. Hint: --as weft.", flag);
}

int plan_asked(const Program& program, PlanArguments& arguments) {
  check_estimate(arguments);
  take_largest_batch(arguments);
  check_device(arguments, program.flags);
  if (is_inference_model(arguments.recipe)) return plan_published(arguments, program.flags);
  Recipe recipe = recipe_of(program, arguments, "plan");
  refuse_model_flags(arguments.model);
  return plan(program, std::move(recipe), arguments);
}

std::vector<Option> estimate_options(EstimateFlags& flags) {
  return {
      {.flag = "--as",
       .type = "PROGRAM",
       .doc = "estimate by formula, on any devices of --on (h100x8), how this program would train: "
              "weft, pytorch, megatron, maxtext, ...",
       .target = &flags.as},
      {.flag = "--products",
       .type = "TYPE",
       .doc = "with --as: the type of the factors of products, such as f8",
       .target = &flags.products},
      {.flag = "--method",
       .type = "METHOD",
       .doc = "with --as: full, lora or qlora (frozen weights in 4 bits)",
       .target = &flags.method},
      {.flag = "--deadline",
       .type = "TIME",
       .doc = "with --as: 7d or 36h, within which the run must end; finds how many devices do it "
              "for least",
       .target = &flags.deadline},
      {.flag = "--budget",
       .type = "USD",
       .doc = "with --as: what the run may cost",
       .target = &flags.budget}};
}
}  // namespace

void add_plan_verb(Program& program) {
  auto arguments = std::make_shared<PlanArguments>();
  Verb& verb = program.root.add(
      {.name = "plan",
       .group = "Runs",
       .doc =
           "Shows what a run, or a published model, needs before it starts: memory, FLOPs, time.",
       .examples = "weft plan recipes/mnist.yaml\nweft plan gpt.yaml --batch 64 --json\n"
                   "weft plan shakespeare --explain\n"
                   "weft plan llama --on h100,a100,rtx4090 --tokens 1B\n"
                   "weft plan llama-405b --as pytorch --on h100x512 --batch 512\n"
                   "weft plan models/Llama-3.2-1B --context 8192 --on rtx4090\n"
                   "weft plan resnet50.onnx --batch 8 --on h100,a100",
       .run = [&program, arguments] { return plan_asked(program, *arguments); },
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
      {.flag = "--samples",
       .type = "N",
       .doc = "samples of an epoch, whatever the recipe's data have",
       .target = &arguments->samples},
      {.flag = "--explain",
       .doc = "show what each compiler pass saved, and why values are stored instead of fused",
       .target = &arguments->explain},
      {.flag = "--memory-svg",
       .type = "FILE",
       .doc = "plot memory over the kernels of the largest step (SVG)",
       .target = &arguments->memory_svg,
       .written = true},
      {.flag = "--json", .doc = "one JSON object instead of text", .target = &arguments->as_json}};
  std::ranges::move(estimate_options(arguments->estimate), std::back_inserter(verb.options));
  std::ranges::move(model_options(arguments->model), std::back_inserter(verb.options));
  add_short_flags(verb, *arguments);
}

}  // namespace weft::cli
