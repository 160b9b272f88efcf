// Implements profile, which measures the time of a training step, or of a published model's
// inference, by module, kind of operation and kernel.
#include "weft/cli/measure/profile.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <optional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "weft/base/error.h"
#include "weft/base/numbers/quantity.h"
#include "weft/base/text/suggest.h"
#include "weft/cli/measure/peaks.h"
#include "weft/cli/measure/profile_subject.h"
#include "weft/cli/outputs.h"
#include "weft/cli/recipes/recipe_arguments.h"
#include "weft/cli/show/svg.h"
#include "weft/cli/show/terminal.h"
#include "weft/io/files.h"
#include "weft/io/json.h"
#include "weft/train/plan/precision.h"
#include "weft/train/run/report.h"

namespace weft::cli {
namespace {
using nlohmann::json;

constexpr int warm_up_updates = 3;

struct ProfileArguments : RecipeArguments {
  int64_t length = 0;
  int steps = 10, depth = 2;
  std::string trace, memory_svg, roofline_svg;
  InferenceFlags model;
  bool inference = false, as_json = false;
};

// ---- the subject of a profile

int64_t batch_of(const RecipeFlag& flag) {
  auto batch = parse_count(flag.value);
  if (!batch || *batch < 1)
    throw Error(ErrorKind::usage, "{} is a count of at least 1. Got '{}'.", flag.flag, flag.value);
  return *batch;
}

const train::PrecisionKind& precision_of(const RecipeFlag& flag) {
  const train::PrecisionKind* found = train::find_precision(flag.value);
  if (found == nullptr || found->parameters != DType::f32)
    throw Error(ErrorKind::usage, "{} of a workload is fp32, bf16-mixed or fp16-mixed. Got '{}'.",
                flag.flag, flag.value);
  return *found;
}

// A workload takes two keys of a recipe.
std::unique_ptr<Subject> named_workload(const Program& program, const ProfileArguments& arguments) {
  const WorkloadKind& kind = find_workload(arguments.recipe);
  const RecipeFlags flags = joined(arguments.flags, program.flags);
  int64_t batch = 0;
  Precision precision = Precision::as_written;
  for (const RecipeFlag& flag : flags) {
    if (flag.path == keys::train::global_batch_size)
      batch = batch_of(flag);
    else if (flag.path == keys::train::precision)
      precision = precision_of(flag).products;
    else
      throw Error(ErrorKind::usage,
                  "the workload {} takes --batch, --length and --precision. Got {}.", kind.name,
                  flag.flag);
  }
  return workload_subject(kind, workload_options(kind, batch, arguments.length, precision));
}

// Throws Error(usage) for a name that is neither a file nor known.
void check_name(const std::string& name) {
  if (name.empty() || name == "-" || io::exists(name, ErrorKind::usage)) return;
  std::vector<std::string> recipes;
  for (const std::string& path : known_recipes())
    recipes.push_back(std::filesystem::path(path).stem().string());
  std::vector<std::string_view> known(recipes.begin(), recipes.end());
  for (const WorkloadKind& kind : workload_kinds()) known.push_back(kind.name);
  if (std::ranges::find(known, name) != known.end()) return;
  std::string_view similar = nearest(std::filesystem::path(name).stem().string(), known);
  throw Error(ErrorKind::usage, "{}: neither recipe, workload nor model.{}", name,
              similar.empty() ? " Hint: weft list recipes; weft list workloads."
                              : fmt::format(" Did you mean {}?", similar));
}

// A Profiled is the subject that the command line names: a recipe, a published model, or else a
// workload.
struct Profiled {
  std::optional<train::Recipe> recipe = {};
  std::optional<InferenceOptions> model = {};

  std::string device() const {
    if (model) return model->device;
    return recipe ? (*recipe)->train.device : "auto";
  }
};
Profiled find_profiled(const Program& program, const ProfileArguments& arguments) {
  const bool is_model = is_inference_model(arguments.recipe);
  check_name(arguments.recipe);
  if (arguments.length > 0 && (is_model || !is_workload(arguments.recipe)))
    throw Error(ErrorKind::usage, "--length is for workloads. Hint: {} N.",
                is_model ? "--context" : "--data.seq_len");
  if (arguments.inference && (is_model || is_workload(arguments.recipe)))
    throw Error(ErrorKind::usage, "--inference is for recipes.{}",
                is_model ? " A model is profiled so already." : "");
  if (is_model)
    return {.model = inference_options("profile", arguments.recipe,
                                       joined(arguments.flags, program.flags), arguments.model)};
  Profiled found;
  if (!is_workload(arguments.recipe)) {
    found.recipe = recipe_of(program, arguments, "profile");
    if (const int64_t ranks = (*found.recipe)->parallel.dp.value_or(1); ranks > 1)
      found.recipe->refuse(
          keys::parallel::dp,
          fmt::format("weft profile runs one rank, and parallel.dp is {}. Hint: --parallel.dp 1.",
                      ranks));
  }
  refuse_model_flags(arguments.model);
  return found;
}

Subjects subjects_of(const Profiled& profiled, const Program& program,
                     const ProfileArguments& arguments) {
  if (profiled.model) return inference_subjects(*profiled.model);
  Subjects subjects;
  if (profiled.recipe)
    subjects.push_back(recipe_subject(*profiled.recipe, arguments.inference));
  else
    subjects.push_back(named_workload(program, arguments));
  return subjects;
}

// ---- output

json rows_json(const std::vector<KernelTime>& rows, const char* title, double update_seconds) {
  json list = json::array();
  for (const KernelTime& row : rows) {
    json entry = {{title, row.name},
                  {"count", row.count},
                  {"ms", 1e3 * row.seconds},
                  {"share", row.seconds / update_seconds},
                  {"gflops_per_s", 1e-9 * row.flops / row.seconds},
                  {"gbytes_per_s", 1e-9 * row.bytes / row.seconds}};
    if (row.at_best > 0 && row.seconds > 0) entry["roofline"] = row.at_best / row.seconds;
    list.push_back(std::move(entry));
  }
  return list;
}

json to_json(const Profile& profile, const MachineSpec& machine, const Subject& subject,
             int depth) {
  std::vector<KernelTime> kernels = by_kernel(profile, machine);
  const double seconds = profile.mean_seconds();
  return {{"profile", subject.text()},
          {"steps", profile.updates.size()},
          {"median_ms", 1e3 * profile.median_seconds()},
          {"mean_ms", 1e3 * seconds},
          {"kernels_ms", 1e3 * total(kernels, "").seconds},
          {"modules", rows_json(by_module(profile, machine, depth), "module", seconds)},
          {"operations", rows_json(by_family(profile, machine), "operation", seconds)},
          {"kernels", rows_json(kernels, "kernel", seconds)},
          {"plan", rows_json(by_launch(profile, machine), "step", seconds)},
          {"bottleneck", bottleneck(profile, machine)}};
}

std::string to_text(const Profile& profile, const MachineSpec& machine, const Subject& subject,
                    int depth) {
  std::vector<KernelTime> kernels = by_kernel(profile, machine);
  KernelTime all = total(kernels, "");
  const double median = profile.median_seconds(), mean = profile.mean_seconds();
  Table facts;
  facts.row({"profile", subject.text()});
  facts.row({"update", fmt::format("median {:.3f} ms of {}, mean {:.3f} ms", 1e3 * median,
                                   profile.updates.size(), 1e3 * mean)});
  facts.row({"kernels", fmt::format("{:.3f} ms, {} of the time", 1e3 * all.seconds,
                                    percent_text(all.seconds, mean))});
  facts.row({"rate", subject.rate_text(median)});
  return fmt::format("{}\n{}\n{}\n{}\n{}\n", facts.text(),
                     to_table(by_module(profile, machine, depth), "module", 40),
                     to_table(by_family(profile, machine), "operation"),
                     to_table(kernels, "kernel"), bottleneck(profile, machine));
}

std::vector<NamedPlan> plans_of(const Profile& profile) {
  std::vector<NamedPlan> plans;
  plans.reserve(profile.plans.size());
  for (const Profile::Part& part : profile.plans) plans.push_back({part.name, part.plan});
  return plans;
}

// Opens files before the first step, so that an unwritable path fails early.
class OutputFile {
 public:
  explicit OutputFile(const std::string& path) {
    if (!path.empty()) file_.emplace(path);
  }
  template <class Make>
  void write(Make make) {
    if (!file_) return;
    file_->write(make());
    file_->commit();
  }

 private:
  std::optional<io::AtomicFile> file_;
};

int run_profile(const Program& program, const ProfileArguments& arguments) {
  OutputFile trace(arguments.trace), memory(arguments.memory_svg), roof(arguments.roofline_svg);
  const Profiled profiled = find_profiled(program, arguments);
  const MachineSpec machine = machine_spec(profiled.device());  // before threads start
  const bool busy = machine_is_busy();
  if (!arguments.roofline_svg.empty() && !machine.known())
    throw Error(ErrorKind::failed,
                "no roofline: the peaks of this machine are not known. Hint: "
                "weft devices --measure.");
  const Subjects subjects = subjects_of(profiled, program, arguments);
  check_outputs_not_read(program);
  std::vector<Profile> profiles;
  for (const std::unique_ptr<Subject>& subject : subjects) {
    for (int i = 0; i < warm_up_updates; ++i) subject->update();
    profiles.push_back(record(subject->executables(), arguments.steps, [&] { subject->update(); }));
  }
  const Profile all = joined(profiles);
  const std::string title = profiled.model ? profiled.model->folder : subjects.front()->text();
  trace.write([&] { return to_trace(all); });
  memory.write([&] { return memory_svg(plans_of(all), title); });
  roof.write([&] { return roofline_svg(all, machine, title); });
  json result = json::object();
  for (size_t i = 0; i < subjects.size(); ++i) {
    if (!arguments.as_json)
      show((i > 0 ? "\n" : "") + to_text(profiles[i], machine, *subjects[i], arguments.depth));
    else if (const std::string key = subjects[i]->key(); !key.empty())
      result[key] = to_json(profiles[i], machine, *subjects[i], arguments.depth);
    else
      result = to_json(profiles[i], machine, *subjects[i], arguments.depth);
  }
  if (arguments.as_json) line(io::json_text(result));
  if (busy && !arguments.as_json)
    remark("note",
           "other processes use this machine's cores: kernels take longer than they would alone.");
  return 0;
}
}  // namespace

void add_profile_verb(Program& program) {
  auto arguments = std::make_shared<ProfileArguments>();
  Verb& verb = program.root.add(
      {.name = "profile",
       .group = "This machine",
       .doc = "Shows where the time of a training step goes, or that of a published model's "
              "inference: of a prompt and each next token, or of a forward pass.",
       .examples = "weft profile recipes/mnist.yaml\n"
                   "weft profile gpt2 --batch 2 --trace gpt2.json\n"
                   "weft profile shakespeare --precision bf16-mixed --roofline-svg roof.svg\n"
                   "weft profile models/gpt2 --batch 16 --context 256",
       .run = [&program, arguments] { return run_profile(program, *arguments); },
       .recipe_keys = true});
  verb.options = {
      {.type = "RECIPE|WORKLOAD|MODEL",
       .doc = "YAML file, - for standard input, the name of a recipe or workload (weft list), the "
              "folder of a run or checkpoint, or a model: its folder, a GGUF file, or an ONNX file",
       .target = &arguments->recipe},
      {.flag = "--steps",
       .type = "N",
       .doc = "timed updates, after three untimed ones (10)",
       .target = &arguments->steps,
       .range = {{1, 100000}}},
      {.flag = "--inference",
       .doc = "recipes: time the evaluation step instead of an update",
       .target = &arguments->inference},
      {.flag = "--length",
       .type = "N",
       .doc = "tokens or columns per row of a workload",
       .target = &arguments->length,
       .range = {{1, 0x1p32}}},
      {.flag = "--depth",
       .type = "N",
       .doc = "levels of module names in the table",
       .target = &arguments->depth,
       .range = {{1, 16}}},
      {.flag = "--trace",
       .type = "FILE",
       .doc = "write a trace of all kernels (JSON for Perfetto or Chrome)",
       .target = &arguments->trace,
       .written = true},
      {.flag = "--memory-svg",
       .type = "FILE",
       .doc = "plot memory over the kernels of the largest plan (SVG)",
       .target = &arguments->memory_svg,
       .written = true},
      {.flag = "--roofline-svg",
       .type = "FILE",
       .doc = "plot each kernel against the roofline (SVG)",
       .target = &arguments->roofline_svg,
       .written = true},
      {.flag = "--json", .doc = "one JSON object instead of text", .target = &arguments->as_json}};
  std::ranges::move(model_options(arguments->model), std::back_inserter(verb.options));
  constexpr std::string_view other[] = {"--name", "--steps", "--epochs"};
  add_short_flags(verb, *arguments, other);
}

}  // namespace weft::cli
