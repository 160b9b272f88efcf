// Implements the verbs on the records of runs: runs, ckpt.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "weft/base/error.h"
#include "weft/base/text/suggest.h"
#include "weft/base/text/utf8.h"
#include "weft/cli/models/model_kind.h"
#include "weft/cli/models/tensor_list.h"
#include "weft/cli/show/run_log.h"
#include "weft/cli/show/terminal.h"
#include "weft/cli/verbs/verbs.h"
#include "weft/io/files.h"
#include "weft/io/json.h"
#include "weft/train/checkpoint/checkpoint.h"
#include "weft/train/run/report.h"

namespace fs = std::filesystem;

namespace weft::cli {
namespace {
using nlohmann::json;
using train::bytes_text;
using train::count_text;
using train::duration_text;
using train::time_text;

// ---- runs

std::string number(double value, int digits = 4) { return fmt::format("{:.{}f}", value, digits); }
std::string unless_zero(double value, const std::string& text) { return value > 0 ? text : "-"; }

// Draws a curve in one line: each block is the mean of its part; "!" where it is not finite.
std::string sparkline(const std::vector<double>& values, size_t width = 40) {
  constexpr std::string_view blocks[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  width = std::min(width, values.size());
  std::vector<double> means;
  for (size_t i = 0; i < width; ++i) {
    size_t first = i * values.size() / width, last = (i + 1) * values.size() / width;
    double sum = 0;
    for (size_t j = first; j < last; ++j) sum += values[j];
    means.push_back(sum / static_cast<double>(last - first));
  }
  double low = std::numeric_limits<double>::infinity(), high = -low;
  for (double mean : means) {
    if (!std::isfinite(mean)) continue;
    low = std::min(low, mean);
    high = std::max(high, mean);
  }
  std::string line;
  for (double mean : means) {
    if (std::isfinite(mean))
      line += blocks[high > low ? static_cast<size_t>(7.99 * (mean - low) / (high - low)) : 0];
    else
      line += "!";
  }
  return line;
}

std::string progress(const RunLog& run) {
  return run.steps > 0 ? fmt::format("{}/{}", run.step, run.steps) : std::to_string(run.step);
}

// Returns the title of the runs' scores: "accuracy", "r2", or for some of each "score".
std::string score_title(const std::vector<RunLog>& runs) {
  const bool is_one = std::ranges::all_of(
      runs, [&](const RunLog& run) { return run.score_name == runs.front().score_name; });
  return is_one ? runs.front().score_name : "score";
}

// Returns the facts that tables show of a run, in this order.
std::vector<std::pair<std::string, std::string>> facts(const RunLog& run,
                                                       const std::string& score) {
  const LoggedEvaluation *last = run.last(), *best = run.best();
  return {{"model", run.model.empty() ? "-" : run.model},
          {"parameters", unless_zero(run.parameters, count_text(run.parameters))},
          {"steps", progress(run)},
          {"ended", run.closed ? "yes" : "no"},
          {"loss", run.losses.empty() ? "-" : number(run.losses.back())},
          {"eval loss", last == nullptr ? "-" : number(last->loss)},
          {score, last == nullptr ? "-" : number(last->score)},
          {"best", best == nullptr ? "-" : fmt::format("{:.4f} at {}", best->score, best->step)},
          {"rate", run.rate ? count_text(*run.rate) + " " + run.unit : "-"},
          {"step time", unless_zero(run.step_seconds, time_text(run.step_seconds))},
          {"planned", unless_zero(run.planned_step_seconds, time_text(run.planned_step_seconds))},
          {"time", unless_zero(run.seconds, duration_text(run.seconds))},
          {"memory", unless_zero(run.process_peak, bytes_text(run.process_peak))},
          {"planned memory", unless_zero(run.planned_bytes, bytes_text(run.planned_bytes))}};
}

json to_json(const RunLog& run) {
  json result = {{"name", run.name},
                 {"model", run.model},
                 {"step", run.step},
                 {"steps", run.steps},
                 {"ended", run.closed},
                 {"parameters", run.parameters},
                 {"seconds", run.seconds},
                 {"step_seconds", run.step_seconds},
                 {"process_peak", run.process_peak}};
  if (!run.losses.empty()) result["loss"] = run.losses.back();
  json& evaluations = result["evaluations"] = json::array();
  for (const LoggedEvaluation& e : run.evaluations)
    evaluations.push_back({{"step", e.step}, {"loss", e.loss}, {run.score_name, e.score}});
  return result;
}

struct RunsArguments {
  std::string runs = "runs";
  std::vector<std::string> names;
  bool as_json = false;
};

RunLog find_run(const RunsArguments& arguments, const std::string& name) {
  const std::string folder = (fs::path(arguments.runs) / name).string();
  if (io::is_folder(folder, ErrorKind::usage)) return read_run(folder);
  if (io::is_folder(name, ErrorKind::usage))
    return read_run(fs::path(name).lexically_normal().string());
  std::vector<RunLog> all = read_runs(arguments.runs);
  std::vector<std::string_view> names;
  names.reserve(all.size());
  for (const RunLog& run : all) names.push_back(run.name);
  std::string_view similar = nearest(name, names);
  throw Error(ErrorKind::usage, "no run {}.{}", folder,
              similar.empty() ? " Hint: weft runs ls." : fmt::format(" Did you mean {}?", similar));
}

int runs_ls(const RunsArguments& arguments) {
  std::vector<RunLog> all = read_runs(arguments.runs);
  if (arguments.as_json) {
    json list = json::array();
    for (const RunLog& run : all) list.push_back(to_json(run));
    line(io::json_text(list, 2));
    return 0;
  }
  if (all.empty()) {
    line(fmt::format("no runs in {}", arguments.runs));
    return 0;
  }
  Table table(
      {"run", "model", ">steps", ">loss", ">eval loss", ">" + score_title(all), ">time", ""});
  for (const RunLog& run : all) {
    const LoggedEvaluation* last = run.last();
    table.row(
        {escaped(run.name), escaped(run.model), progress(run),
         run.losses.empty() ? "-" : number(run.losses.back()),
         last == nullptr ? "-" : number(last->loss), last == nullptr ? "-" : number(last->score),
         unless_zero(run.seconds, duration_text(run.seconds)), run.closed ? "" : "not finished"});
  }
  show(table.text());
  return 0;
}

int runs_show(const RunsArguments& arguments) {
  RunLog run = find_run(arguments, arguments.names.front());
  if (arguments.as_json) {
    line(io::json_text(to_json(run), 2));
    return 0;
  }
  Table table;
  table.row({"run", escaped(run.folder)});
  for (const auto& [what, value] : facts(run, run.score_name)) table.row({what, escaped(value)});
  if (run.losses.size() > 1)
    table.row({"loss curve", fmt::format("{:.3f} {} {:.3f}", run.losses.front(),
                                         sparkline(run.losses), run.losses.back())});
  show(table.text());
  if (!run.evaluations.empty()) {
    Table evaluations({">step", ">eval loss", ">" + run.score_name});
    for (const LoggedEvaluation& e : run.evaluations)
      evaluations.row({std::to_string(e.step), number(e.loss), number(e.score)});
    show("\n" + evaluations.text());
  }
  return 0;
}

// Adds rows for the keys in which the recipes differ.
void add_differences(const std::vector<RunLog>& runs, Table& table) {
  std::vector<std::map<std::string, std::string>> recipes;
  recipes.reserve(runs.size());
  for (const RunLog& run : runs) recipes.push_back(recipe_values(run));
  for (const RecipeKey& key : train::recipe_keys()) {
    std::string path(key.path);
    bool same = std::all_of(recipes.begin(), recipes.end(),
                            [&](auto& recipe) { return recipe[path] == recipes.front()[path]; });
    if (same || path == keys::name) continue;
    std::vector<std::string> cells = {path};
    for (auto& recipe : recipes) cells.push_back(shortened(escaped(recipe[path]), 24));
    table.row(std::move(cells));
  }
}

int runs_compare(const RunsArguments& arguments) {
  std::vector<RunLog> all;
  all.reserve(arguments.names.size());
  for (const std::string& name : arguments.names) all.push_back(find_run(arguments, name));
  if (arguments.as_json) {
    json list = json::array();
    for (const RunLog& run : all) list.push_back(to_json(run));
    line(io::json_text(list, 2));
    return 0;
  }
  std::vector<std::string> titles = {""}, curves = {"loss curve"};
  std::vector<std::vector<std::pair<std::string, std::string>>> columns;
  for (const RunLog& run : all) {
    titles.push_back(">" + escaped(run.name));
    curves.push_back(sparkline(run.losses, 16));
    columns.push_back(facts(run, score_title(all)));
  }
  Table table(titles);
  for (size_t i = 0; i < columns.front().size(); ++i) {
    std::vector<std::string> cells = {columns.front()[i].first};
    for (const auto& column : columns) cells.push_back(escaped(column[i].second));
    table.row(std::move(cells));
  }
  table.row(std::move(curves));
  add_differences(all, table);
  show(table.text());
  return 0;
}

void add_runs(Program& program) {
  Verb& runs = program.root.add({.name = "runs",
                                 .group = "Records",
                                 .doc = "Lists, shows and compares runs.",
                                 .examples = "weft runs ls\nweft runs compare baseline wide"});
  auto add = [&](Verb verb, const std::shared_ptr<RunsArguments>& arguments) {
    verb.options.push_back({.flag = "--runs",
                            .type = "FOLDER",
                            .doc = "folder of all runs (runs)",
                            .target = &arguments->runs});
    verb.options.push_back({.flag = "--json", .doc = "as JSON", .target = &arguments->as_json});
    runs.add(std::move(verb));
  };
  auto ls = std::make_shared<RunsArguments>(), show = std::make_shared<RunsArguments>(),
       compare = std::make_shared<RunsArguments>();
  add({.name = "ls",
       .doc = "Lists all runs, one per line.",
       .examples = "weft runs ls",
       .run = [ls] { return runs_ls(*ls); }},
      ls);
  add({.name = "show",
       .doc = "Shows one run: progress, losses, times, evaluations.",
       .examples = "weft runs show mnist",
       .run = [show] { return runs_show(*show); },
       .options = {{.type = "RUN",
                    .doc = "name or folder of the run",
                    .target = &show->names,
                    .required = true}}},
      show);
  add({.name = "compare",
       .doc = "Compares runs: results in columns, and the recipe keys that differ.",
       .examples = "weft runs compare baseline wide",
       .run = [compare] { return runs_compare(*compare); },
       .options = {{.type = "RUN",
                    .doc = "names or folders, two or more",
                    .target = &compare->names,
                    .required = true,
                    .least = 2,
                    .most = 64}}},
      compare);
}

// ---- ckpt

std::string checkpoint_marks(const train::CheckpointInfo& info) {
  return std::string(info.latest ? "latest" : "") + (info.latest && info.best ? ", " : "") +
         (info.best ? "best" : "");
}

int ckpt_ls(const std::string& run, bool as_json) {
  std::string folder = train::locate_run(run);
  if (!io::is_folder(folder, ErrorKind::usage))
    throw Error(ErrorKind::usage, "no run {}. Hint: weft runs ls.", folder);
  std::vector<train::CheckpointInfo> all = train::list_checkpoints(folder);
  if (as_json) {
    json list = json::array();
    for (const auto& info : all)
      list.push_back({{"path", info.path},
                      {"step", info.step},
                      {"bytes", info.bytes},
                      {"latest", info.latest},
                      {"best", info.best}});
    line(io::json_text(list, 2));
    return 0;
  }
  if (all.empty()) line(fmt::format("no checkpoints in {}", escaped(folder)));
  Table table({">step", ">size", "", "folder"});
  for (const auto& info : all)
    table.row({std::to_string(info.step), bytes_text(static_cast<double>(info.bytes)),
               checkpoint_marks(info), escaped(info.path)});
  if (!all.empty()) show(table.text());
  return 0;
}

int ckpt_inspect(const std::string& name, bool all, bool as_json) {
  std::error_code none;
  ListedModel model{.name = name, .files = {}};
  if (!fs::is_regular_file(name, none))
    model.name = train::weights_of(train::find_checkpoint(train::locate_run(name)));
  if (const ModelKind& kind = kind_of(model.name); kind.format.weights == nullptr)
    model = kind.tensors(model.name, /*zeros=*/false);
  else
    model.files.push_back(listed(model.name, /*zeros=*/false));
  list_tensors(model, all, /*zeros=*/false, as_json);
  return 0;
}

int ckpt_verify(const std::string& name, bool as_json) {
  std::string folder = train::verified_checkpoint(train::locate_run(name));
  line(as_json ? io::json_text(json{{"checkpoint", folder}, {"whole", true}})
               : fmt::format("{}: every file matches its manifest", escaped(folder)));
  return 0;
}

void add_ckpt(Program& program) {
  Verb& ckpt = program.root.add({.name = "ckpt",
                                 .group = "Records",
                                 .doc = "Lists, inspects and verifies checkpoints.",
                                 .examples = "weft ckpt ls mnist\nweft ckpt verify mnist"});
  auto name = std::make_shared<std::string>();
  auto all = std::make_shared<bool>(false), as_json = std::make_shared<bool>(false);
  Verb& ls = ckpt.add({.name = "ls",
                       .doc = "Lists the checkpoints of a run.",
                       .examples = "weft ckpt ls mnist",
                       .run = [=] { return ckpt_ls(*name, *as_json); }});
  ls.options = {
      {.type = "RUN", .doc = "name or folder of the run", .target = name.get(), .required = true},
      {.flag = "--json", .doc = "as JSON", .target = as_json.get()}};
  Verb& inspect =
      ckpt.add({.name = "inspect",
                .doc = "Lists the tensors of a checkpoint or of a safetensors file.",
                .examples = "weft ckpt inspect mnist\nweft ckpt inspect model.safetensors",
                .run = [=] { return ckpt_inspect(*name, *all, *as_json); }});
  inspect.options = {{.type = "CHECKPOINT",
                      .doc = "a safetensors file, a checkpoint folder, or a run's folder or name",
                      .target = name.get(),
                      .required = true},
                     {.flag = "--all",
                      .doc = "one row for each tensor, also where names differ only by numbers",
                      .target = all.get()},
                     {.flag = "--json", .doc = "as JSON", .target = as_json.get()}};
  Verb& verify =
      ckpt.add({.name = "verify",
                .doc = "Checks every file against the manifest; exit code 5 if one differs.",
                .examples = "weft ckpt verify runs/mnist/checkpoints/best",
                .run = [=] { return ckpt_verify(*name, *as_json); }});
  verify.options = {{.type = "CHECKPOINT",
                     .doc = "a checkpoint folder, or a run's folder or name",
                     .target = name.get(),
                     .required = true},
                    {.flag = "--json", .doc = "as JSON", .target = as_json.get()}};
}
}  // namespace

void add_record_verbs(Program& program) {
  add_runs(program);
  add_ckpt(program);
}

}  // namespace weft::cli
