// Plans runs for `weft plan`, and plans again within the memory of the device or of this machine
// what does not fit. Refuses what cannot fit, and names the changes with which it would.
#include "weft/train/plan/plan_run.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "weft/base/host/stopwatch.h"
#include "weft/base/memory/memory.h"
#include "weft/base/numbers/quantity.h"
#include "weft/runtime/executable.h"
#include "weft/train/plan/advice.h"

namespace weft::train {
namespace {
// Returns the memory that is available for what train.memory limits: state, constants and arena.
size_t room_for(const RunReport& report, size_t host_memory) {
  const size_t has = report.on_host ? host_memory : report.device_bytes;
  const size_t besides =
      report.on_host ? report.data_bytes + report.runtime_bytes : report.staging_bytes;
  return has - std::min(has, besides);
}

std::string memory_text(size_t bytes) {
  return bytes >> 20 > 0 ? fmt::format("{}MiB", bytes >> 20)
                         : fmt::format("{}KiB", std::max<size_t>(bytes >> 10, 1));
}

std::string too_large(const RunReport& report) {
  auto text = [](size_t count) { return bytes_text(static_cast<double>(count)); };
  return fmt::format("the plan does not fit: it takes {} of memory. A run can use {} on {}.",
                     text(report.memory_taken()), text(report.memory_there()),
                     report.on_host ? "this machine" : report.device_name);
}

// Compares the plan with `whole`, the plan without a memory limit.
void compare(PlannedRun& planned, const PlannedRun& whole) {
  planned.report.unlimited_bytes = whole.report.total_bytes();
  planned.report.unlimited_seconds = whole.report.expected_seconds();
}

// Records the cost of fitting in memory: plans again without a limit for comparison.
void compare_with_unlimited(PlannedRun& planned, const MachineSpec& machine) {
  Recipe unlimited = planned.experiment.recipe;
  const bool is_compared = planned.report.unlimited_bytes > 0;
  if (is_compared || (planned.report.rematerialized == 0 && !unlimited->train.memory)) return;
  unlimited.set(keys::train::memory, "null", limit_origin);
  unlimited.set(keys::train::recompute, "none", limit_origin);
  compare(planned, PlannedRun(unlimited, machine));
}

StepOptions options_until(const Experiment& experiment, std::optional<double> until) {
  StepOptions options = step_options(experiment, "null:" + experiment.recipe->train.device);
  options.until = until;
  return options;
}
}  // namespace

RunReport report_of(const Experiment& experiment, Steps& steps, const MachineSpec& machine) {
  std::vector<StepReport> reports;
  for (auto& [name, executable] : steps.executables()) {
    int64_t times = name == "accumulate"                  ? experiment.passes_per_step()
                    : name == "train" || name == "update" ? 1
                                                          : 0;
    reports.push_back({name, &executable->plan(), times});
  }
  return make_report(experiment, std::move(reports), static_cast<size_t>(steps.accumulator_bytes()),
                     machine);
}

std::unique_ptr<PlannedRun> plan_within(const Recipe& recipe, const MachineSpec& machine,
                                        size_t host_memory, std::string message, double began,
                                        std::unique_ptr<PlannedRun> whole) {
  Recipe unlimited = recipe, limited = recipe;
  unlimited.set(keys::train::memory, "null", limit_origin);
  if (whole == nullptr) whole = std::make_unique<PlannedRun>(unlimited, machine);
  const RunReport& report = whole->report;
  const size_t has = report.on_host ? host_memory : report.device_bytes;
  const auto own = static_cast<size_t>(recipe->train.memory.value_or(INT64_MAX));
  size_t room = room_for(report, host_memory);
  if (room == 0 || own <= room)
    throw DoesNotFit(message + " " + changes_that_fit(recipe, machine, has, began),
                     refusal_table(report, own));
  if (recipe->train.memory) message = too_large(report);
  limited.set(keys::train::memory, memory_text(room), limit_origin);
  size_t least = 0;
  if (auto planned = plan_that_fits(limited, machine, has, {}, &least)) {
    if (recipe->train.recompute == Recompute::automatic) compare(*planned, *whole);
    return planned;
  }
  if (least > 0)
    message +=
        fmt::format(" Its smallest plan takes {}, and {} are available to it.",
                    bytes_text(static_cast<double>(least)), bytes_text(static_cast<double>(room)));
  throw DoesNotFit(message + " " + changes_that_fit(limited, machine, has, began),
                   refusal_table(report, room));
}

PlannedRun::PlannedRun(const Recipe& recipe, const MachineSpec& machine,
                       std::optional<double> until)
    : experiment(make_experiment(recipe, {.initialize = false})),
      steps(experiment, options_until(experiment, until)),
      report(report_of(experiment, steps, machine)) {}

std::unique_ptr<PlannedRun> plan_that_fits(Recipe recipe, const MachineSpec& machine, size_t has,
                                           std::optional<double> until, size_t* least) {
  // The memory that a process takes besides state and arena depends on its plan, so the second plan
  // has that much less room.
  for (int time = 0; time < 2; ++time) {
    try {
      auto planned = std::make_unique<PlannedRun>(recipe, machine, until);
      const size_t takes = planned->report.memory_taken();
      if (has == 0 || takes <= has) return planned;
      if (!recipe->train.memory) return nullptr;
      const auto limit = static_cast<size_t>(*recipe->train.memory);
      if (limit <= takes - has) return nullptr;
      recipe.set(keys::train::memory, memory_text(limit - (takes - has)), limit_origin);
    } catch (const StepTooLarge& error) {
      if (least != nullptr) *least = error.least_bytes;
      return nullptr;
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::does_not_fit) throw;
      return nullptr;
    }
  }
  return nullptr;
}

std::unique_ptr<PlannedRun> plan_run(const Recipe& recipe, const MachineSpec& machine) {
  const double began = processor_seconds();
  std::unique_ptr<PlannedRun> planned;
  try {
    planned = std::make_unique<PlannedRun>(recipe, machine);
    const size_t has = planned->report.memory_there();
    if (has > 0 && planned->report.memory_taken() > has)
      throw Error(ErrorKind::does_not_fit, "{}", too_large(planned->report));
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::does_not_fit) throw;
    if (recipe->train.memory) planned.reset();  // planned within that limit
    planned =
        plan_within(recipe, machine, machine_memory(), error.what(), began, std::move(planned));
  }
  compare_with_unlimited(*planned, machine);
  RunReport& report = planned->report;
  constexpr double dear = 0.4;  // rematerializing the whole forward pass takes about a third
  if (report.recompute_price() > dear)
    report.quicker = quicker_changes(planned->experiment.recipe, machine, report.memory_there(),
                                     began, report.expected_seconds());
  return planned;
}

}  // namespace weft::train
