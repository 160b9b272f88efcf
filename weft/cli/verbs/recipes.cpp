// Implements the verbs about recipes: init, list, config.
#include <filesystem>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "weft/base/host/env.h"
#include "weft/base/text/suggest.h"
#include "weft/cli/measure/workloads.h"
#include "weft/cli/recipes/starters.h"
#include "weft/cli/show/terminal.h"
#include "weft/cli/verbs/verbs.h"
#include "weft/device/catalogue.h"
#include "weft/io/files.h"
#include "weft/io/json.h"
#include "weft/models/family.h"
#include "weft/models/model.h"
#include "weft/nn/nn.h"
#include "weft/optim/registry.h"
#include "weft/train/task/dataset.h"
#include "weft/train/task/loss.h"
#include "weft/train/task/metric.h"
#include "weft/train/task/transforms.h"

namespace fs = std::filesystem;

namespace weft::cli {
namespace {
using nlohmann::json;

// ---- init

struct InitArguments {
  std::string kind, output;
  bool overwrite = false, as_json = false;
};

std::string kinds_text() {
  std::string text;
  for (const Starter& starter : starters())
    text += fmt::format("{}{}", text.empty() ? "" : ", ", starter.kind);
  return text;
}

int init(const InitArguments& arguments) {
  for (const Starter& starter : starters()) {
    if (starter.kind != arguments.kind) continue;
    std::string path = arguments.output.empty() ? arguments.kind + ".yaml" : arguments.output;
    if (path == "-") {
      const std::string_view recipe = starter.recipe;
      line(recipe.substr(0, recipe.find_last_not_of('\n') + 1));
      return 0;
    }
    std::error_code none;  // only a regular file is replaced; others are written through
    const bool replaces =
        io::exists(path, ErrorKind::usage) && std::filesystem::is_regular_file(path, none);
    if (replaces && !arguments.overwrite)
      throw Error(ErrorKind::usage, "{} exists. Hint: --output FILE, or --overwrite.", path);
    io::write_file_atomically(path, starter.recipe);
    line(arguments.as_json
             ? io::json_text(json{{"recipe", path}})
             : fmt::format("wrote {0}\n  weft plan {0}    what it needs\n  weft train {0}   run it",
                           path));
    return 0;
  }
  throw Error(ErrorKind::usage, "no starter recipe '{}'. Known: {}.", arguments.kind, kinds_text());
}

void add_init(Program& program) {
  auto arguments = std::make_shared<InitArguments>();
  Verb& verb = program.root.add({.name = "init",
                                 .group = "Recipes",
                                 .doc = "Writes a commented starter recipe.",
                                 .examples = "weft init image\nweft init text --output poems.yaml",
                                 .run = [arguments] { return init(*arguments); }});
  verb.options = {
      {.type = "KIND", .doc = kinds_text(), .target = &arguments->kind, .required = true},
      {.flag = "--output",
       .letter = 'o',
       .type = "FILE",
       .doc = "file to write (KIND.yaml); - for standard output",
       .target = &arguments->output,
       .written = true},
      {.flag = "--overwrite", .doc = "replace an existing file", .target = &arguments->overwrite},
      {.flag = "--json", .doc = "one JSON object instead of text", .target = &arguments->as_json}};
}

// ---- list

struct Topic {
  std::string name;
  std::vector<std::string> titles;
  std::vector<std::vector<std::string>> rows;
};

// Returns the first line of the comment at the start of a file.
std::string first_comment(const std::string& path) {
  std::string text = io::read_file(path, 1 << 20);
  if (!text.starts_with("#")) return "";
  text = text.substr(0, text.find('\n'));
  text = text.substr(std::min(text.size(), text.find_first_not_of("# ")));
  return text.substr(0, text.find(": "));
}

constexpr std::string_view format_prefix = "format: ";

std::vector<std::vector<std::string>> data_rows() {
  std::vector<std::vector<std::string>> rows;
  for (const train::DataEntry& entry : registry::datasets())
    rows.push_back({entry.name, entry.doc, entry.where ? entry.where() : "always"});
  for (const train::DataEntry& entry : registry::formats())
    rows.push_back(
        {std::string(format_prefix) + entry.name, entry.doc, std::string(keys::data::path)});
  return rows;
}

bool is_activation(const nn::LayerKind& layer) {
  std::vector<std::string_view> names = nn::activation_names();
  return std::find(names.begin(), names.end(), layer.name) != names.end();
}

// Lists several names per line, as activations have no options.
std::string activations_text() {
  std::string text = "activations:";
  size_t width = text.size();
  for (std::string_view name : nn::activation_names()) {
    if (width + 1 + name.size() > 100) {
      text += "\n ";
      width = 1;
    }
    text += fmt::format(" {}", name);
    width += 1 + name.size();
  }
  return text;
}

std::vector<std::string> gpu_titles() {
  return {"gpu", ">memory", ">GB/s", ">f32", ">tf32", ">f16, bf16", ">f64 TFLOP/s", "name"};
}
std::string name_of(const DeviceModel& gpu) {
  if (gpu.measured.bf16_tflops <= 0 || gpu.measured.gb_per_s <= 0) return std::string(gpu.name);
  return fmt::format("{}, measured at {:.4g} TFLOP/s in 16 bits, {:.0f} GB/s", gpu.name,
                     gpu.measured.bf16_tflops, gpu.measured.gb_per_s);
}
std::vector<std::vector<std::string>> gpu_rows() {
  auto peak = [](double value) { return value > 0 ? fmt::format("{:.4g}", value) : "-"; };
  std::vector<std::vector<std::string>> rows;
  for (const DeviceModel* gpu : device_models()) {
    if (!has_kernels(*gpu)) continue;
    const Peaks& peaks = gpu->dense_tflops;
    rows.push_back({fmt::format("cuda:{}", gpu->id),
                    fmt::format("{:.1f} GiB", gpu->memory_bytes() / 0x1p30),
                    fmt::format("{:.0f}", gpu->memory.gb_per_s), peak(peaks.f32), peak(peaks.tf32),
                    peak(gpu->half_tflops()), peak(peaks.f64), name_of(*gpu)});
  }
  return rows;
}

// Lists the names and descriptions of a registry's entries.
template <class Entry>
Topic topic_of(const std::string& name, const std::string& title, const std::string& doc,
               const Registry<Entry>& registry) {
  Topic topic{name, {title, doc}, {}};
  for (const Entry& entry : registry) topic.rows.push_back({entry.name, entry.doc});
  return topic;
}

Topic families() {
  Topic topic{"families", {"family", "models that config.json can name"}, {}};
  for (const auto& [name, doc] : models::known_model_types()) topic.rows.push_back({name, doc});
  return topic;
}

Topic layers() {
  Topic topic{"layers", {"layer", "what it does", "options"}, {}};
  for (const nn::LayerKind& layer : nn::layer_kinds())
    if (!is_activation(layer))
      topic.rows.push_back(
          {std::string(layer.name), std::string(layer.doc), std::string(layer.options)});
  return topic;
}

Topic optimizers() {
  Topic topic{"optimizers", {"optimizer", "what it is", "settings"}, {}};
  for (const optim::OptimizerEntry& entry : registry::optimizers())
    topic.rows.push_back({entry.name, entry.doc, entry.all_settings()});
  return topic;
}

Topic recipes() {
  Topic topic{"recipes", {"recipe", "what it does"}, {}};
  for (const std::string& path : known_recipes())
    topic.rows.push_back({fs::path(path).stem().string(), first_comment(path)});
  return topic;
}

Topic workloads() {
  Topic topic{"workloads", {"workload", "what it is", "batch"}, {}};
  for (const WorkloadKind& kind : workload_kinds()) {
    std::string size = kind.initial.batch > 0 ? std::to_string(kind.initial.batch) : "-";
    if (kind.initial.length > 0) size += fmt::format(" x {}", kind.initial.length);
    topic.rows.push_back({std::string(kind.name), std::string(kind.doc), size});
  }
  return topic;
}

std::vector<Topic> topics() {
  return {topic_of("models", "model", "what it is", registry::models()),
          layers(),
          families(),
          {"data", {"data", "what it is", "where"}, data_rows()},
          topic_of("transforms", "transform", "options", registry::transforms()),
          topic_of("losses", "loss", "what it is", registry::losses()),
          topic_of("metrics", "metric", "what it is", registry::metrics()),
          optimizers(),
          topic_of("schedules", "schedule", "learning rate over the run", registry::schedules()),
          recipes(),
          workloads(),
          {"gpus", gpu_titles(), gpu_rows()}};
}

// Data sets and data formats share a topic; the plural of either names its rows of that kind.
std::string topic_name(const std::string& wanted) {
  return wanted == "datasets" || wanted == "formats" ? "data" : wanted;
}

int list(const std::string& topic_wanted, bool as_json) {
  const std::string wanted = topic_name(topic_wanted);
  std::vector<Topic> all = topics();
  if (!wanted.empty()) {
    std::vector<std::string_view> names;
    names.reserve(all.size());
    for (const Topic& topic : all) names.push_back(topic.name);
    if (std::find(names.begin(), names.end(), wanted) == names.end())
      throw Error(ErrorKind::usage, "weft list knows {}. Got '{}'.", fmt::join(names, ", "),
                  wanted);
    std::erase_if(all, [&](const Topic& topic) { return topic.name != wanted; });
    if (topic_wanted != wanted)
      std::erase_if(all.front().rows, [&](const std::vector<std::string>& row) {
        return row.front().starts_with(format_prefix) != (topic_wanted == "formats");
      });
  }
  if (as_json) {
    json result = json::object();
    for (const Topic& topic : all) {
      result[topic.name] = json::array();
      for (const auto& row : topic.rows) result[topic.name].push_back(row.front());
    }
    if (result.contains("layers"))
      for (std::string_view name : nn::activation_names()) result["layers"].push_back(name);
    line(io::json_text(result, 2));
    return 0;
  }
  bool first = true;
  for (const Topic& topic : all) {
    if (topic.rows.empty() && wanted.empty()) continue;
    if (!first) out("\n");
    first = false;
    Table table(topic.titles);
    for (const auto& row : topic.rows) table.row(row);
    show(table.text());
    if (topic.name == "layers") show(activations_text() + "\n");
  }
  return 0;
}

void add_list(Program& program) {
  auto topic = std::make_shared<std::string>();
  auto as_json = std::make_shared<bool>(false);
  Verb& verb = program.root.add({.name = "list",
                                 .group = "Recipes",
                                 .doc = "Models, layers, families, data, losses, metrics, "
                                        "optimizers, schedules, recipes, workloads, GPUs.",
                                 .examples = "weft list\nweft list models",
                                 .run = [=] { return list(*topic, *as_json); }});
  verb.options = {{.type = "TOPIC", .doc = "what to list (all)", .target = topic.get()},
                  {.flag = "--json", .doc = "names as one JSON object", .target = as_json.get()}};
}

// ---- config

void add_config(Program& program) {
  Verb& config =
      program.root.add({.name = "config",
                        .group = "Recipes",
                        .doc = "Prints a recipe with all its keys, or the reference of all keys.",
                        .examples = "weft config print mnist --optimizer.lr 0.01"});
  auto recipe = std::make_shared<std::string>();
  auto as_json = std::make_shared<bool>(false);
  Verb& print =
      config.add({.name = "print",
                  .doc = "Prints a recipe with every key, after flags and environment are applied.",
                  .examples = "weft config print recipes/mnist.yaml --train.epochs 2",
                  .run =
                      [&program, recipe, as_json] {
                        train::Recipe full = load_recipe(*recipe, program.flags);
                        out(*as_json ? full.to_json() : full.to_yaml());
                        return 0;
                      },
                  .recipe_keys = true});
  print.options = {
      {.type = "RECIPE",
       .doc = "YAML file, - for standard input, or the name of a recipe",
       .target = recipe.get()},
      {.flag = "--json", .doc = "one JSON object instead of text", .target = as_json.get()}};
  Verb& schema = config.add({.name = "schema",
                             .doc = "JSON Schema of recipes, for editors.",
                             .examples = "weft config schema > recipe.schema.json",
                             .run = [] {
                               out(train::recipe_schema());
                               return 0;
                             }});
  schema.options = {
      {.flag = "--json", .doc = "no effect: the schema is JSON already", .target = as_json.get()}};
  Verb& reference =
      config.add({.name = "reference",
                  .doc = "Every key: type, default, what it does (Markdown).",
                  .examples = "weft config reference",
                  .run = [as_json] {
                    out(*as_json ? train::recipe_schema() : train::recipe_reference());
                    return 0;
                  }});
  reference.options = {
      {.flag = "--json", .doc = "the same as weft config schema", .target = as_json.get()}};
}
}  // namespace

void add_recipe_verbs(Program& program) {
  add_init(program);
  add_list(program);
  add_config(program);
}

}  // namespace weft::cli
