#include "weft/cli/verbs/plan_on.h"

#include <algorithm>
#include <optional>
#include <ranges>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "weft/base/numbers/quantity.h"
#include "weft/base/numbers/rounding.h"
#include "weft/cli/estimate/devices_on.h"
#include "weft/cli/measure/peaks.h"
#include "weft/cli/recipes/recipe_flags.h"
#include "weft/cli/show/terminal.h"
#include "weft/device/catalogue.h"
#include "weft/io/json.h"
#include "weft/train/run/trainer.h"

namespace weft::cli {
namespace {
using nlohmann::json;
using train::Recipe;

// PlannedRecipe is a recipe planned for one machine: its report, or the reason why it does not fit.
struct PlannedRecipe {
  std::string on;
  std::optional<train::RunReport> report;
  std::string report_json, refusal;
};

std::string device_of(std::string_view name) {
  if (name == "cpu") return "cpu";
  if (name.empty()) throw Error(ErrorKind::usage, "--on has an empty name. Hint: --on h100,h200.");
  if (name.starts_with("cuda:")) name.remove_prefix(5);  // as printed by weft list gpus
  const CountedName counted = split_count(name);
  const bool is_counted = !counted.count.empty() && find_gpu(counted.name) != nullptr;
  if (is_counted && counted.count == "1") name = counted.name;
  if (const DeviceModel* gpu = find_gpu(name)) return fmt::format("cuda:{}", gpu->id);
  if (is_counted)
    throw Error(ErrorKind::usage, "--on {}: a run uses one device. Hint: --on {}.", name,
                counted.name);
  throw Error(ErrorKind::usage, "--on {}: no such machine. {}", name, machine_hint(name));
}

PlannedRecipe planned_on(Recipe recipe, const std::string& device) {
  recipe.set(keys::train::device, device, "--on");
  PlannedRecipe result{.on = device.substr(device.find(':') + 1)};
  try {
    const auto run = train::plan_run(recipe, machine_spec(device));
    result.report_json = to_json(run->report);
    result.report = run->report;
    result.report->plans.clear();  // as many devices may be asked about
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::does_not_fit) throw;
    result.refusal = error.what();
  }
  return result;
}

std::vector<PlannedRecipe> all_recipes_planned(const Recipe& recipe,
                                               const std::vector<std::string>& devices) {
  std::vector<PlannedRecipe> all;
  all.reserve(devices.size());
  for (const std::string& device : devices) all.push_back(planned_on(recipe, device));
  std::ranges::stable_sort(all, {}, [](const PlannedRecipe& planned) {
    return std::pair(!planned.report, planned.report ? planned.report->expected_seconds() : 0);
  });
  return all;
}

std::string recipe_table(const std::vector<PlannedRecipe>& all) {
  Table table({"device", "memory", "limit", "recompute", "rate", "expected", "at best"});
  std::string reasons;
  for (const PlannedRecipe& planned : all) {
    if (!planned.report) {
      table.row({planned.on, "does not fit"});
      reasons += fmt::format("\n{}: {}\n", planned.on, planned.refusal);
      continue;
    }
    const train::RunReport& report = *planned.report;
    table.row(
        {planned.on, size_text(report.on_host ? report.process_bytes() : report.total_bytes()),
         size_text(report.memory_there()),
         report.rematerialized > 0 ? fmt::format("+{:.0f} %", 100 * report.recompute_price()) : "-",
         fmt::format("{} {}/s", train::count_text(report.units / report.expected_seconds()),
                     report.unit),
         train::time_text(report.expected_total_seconds()),
         train::time_text(report.total_seconds())});
    if (const std::string measured = train::measured_text(report); !measured.empty())
      reasons += fmt::format("\n{}: {}.\n", planned.on, measured);
    if (!report.quicker.empty()) reasons += fmt::format("\n{}: {}\n", planned.on, report.quicker);
  }
  return table.text() + reasons;
}

std::string recipe_json(const std::vector<PlannedRecipe>& all) {
  json entries = json::array();
  for (const PlannedRecipe& planned : all) {
    json entry{{"on", planned.on}, {"fits", planned.report.has_value()}};
    if (planned.report)
      entry["plan"] = io::parse_json(planned.report_json);
    else
      entry["refusal"] = planned.refusal;
    entries.push_back(std::move(entry));
  }
  return io::json_text(entries, 2);
}
}  // namespace

std::vector<std::string> devices_on(const std::string& names) {
  std::vector<std::string> devices;
  for (const auto& part : std::views::split(names, ',')) {
    const std::string_view name(part.begin(), part.end());
    devices.push_back(device_of(name));
    if (std::count(devices.begin(), devices.end(), devices.back()) > 1)
      throw Error(ErrorKind::usage, "--on names {} more than once.", name);
  }
  return devices;
}

namespace {
void set_steps(Recipe& recipe, int64_t steps, const std::string& flag) {
  recipe.set(keys::train::epochs, "null", flag);
  recipe.set(keys::train::steps, std::to_string(steps), flag);
}
}  // namespace

void train_on_tokens(Recipe& recipe, const std::string& tokens) {
  std::string count = tokens;
  if (count.ends_with('B')) count.back() = 'G';  // billions
  const auto wanted = parse_count(count);
  if (!wanted || *wanted < 1)
    throw Error(ErrorKind::usage, "--tokens is a count such as 300M or 1B. Got '{}'.", tokens);
  set_steps(recipe, 1, "--tokens");
  const train::Experiment experiment = train::make_experiment(recipe, {.initialize = false});
  if (experiment.shape.kind != InputKind::tokens)
    throw Error(ErrorKind::usage, "--tokens: {} has no tokens.",
                recipe->data.dataset.has_value() ? *recipe->data.dataset : "this data");
  const int64_t each = experiment.global_batch * experiment.units_per_sample();
  set_steps(recipe, ceil_div(*wanted, each), "--tokens");
}

void train_on_samples(Recipe& recipe, const std::string& samples) {
  const auto count = parse_count(samples);
  if (!count || *count < 1)
    throw Error(ErrorKind::usage, "--samples is a count such as 1281167. Got '{}'.", samples);
  if (!recipe->train.epochs)
    throw Error(ErrorKind::usage, "--samples: the run has steps, no epochs. Hint: --epochs 90.");
  const int64_t epoch = *count / recipe->train.global_batch_size;
  if (epoch == 0)
    throw Error(ErrorKind::usage, "--samples {}: a batch has {} samples.", *count,
                recipe->train.global_batch_size);
  set_steps(recipe, epoch * *recipe->train.epochs, "--samples");
}

PlansOn plans_on(const Recipe& recipe, const std::vector<std::string>& devices, bool as_json) {
  const std::vector<PlannedRecipe> all = all_recipes_planned(recipe, devices);
  return {as_json ? recipe_json(all) : recipe_table(all),
          std::ranges::any_of(
              all, [](const PlannedRecipe& planned) { return planned.report.has_value(); })};
}

}  // namespace weft::cli
