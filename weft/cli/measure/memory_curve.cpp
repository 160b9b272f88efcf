#include "weft/cli/measure/memory_curve.h"

#include <algorithm>

#include <fmt/format.h>

#include "weft/base/error.h"
#include "weft/base/host/stopwatch.h"
#include "weft/base/numbers/median.h"
#include "weft/cli/show/terminal.h"
#include "weft/nn/module.h"
#include "weft/runtime/executable.h"
#include "weft/train/run/report.h"

namespace weft::cli {
namespace {
size_t bytes_outside_arena(const Plan& plan) {
  size_t bytes = 0;
  for (const Slot& slot : plan.slots)
    if (slot.space != Space::arena) bytes += slot.bytes;
  return bytes;
}

// Returns the bytes of the step as planned with these options, without running it.
size_t planned_bytes(const WorkloadKind& kind, WorkloadOptions options) {
  nn::BuildScope no_weights({.initialize = false});
  options.compile.device = "null:" + options.compile.device;
  const std::unique_ptr<Workload> workload = make_workload(kind, options);
  const Plan& plan = workload->executable().plan();
  return bytes_outside_arena(plan) + plan.arena_bytes;
}

// Returns the minimum that the planner reports for a limit that cannot be met.
size_t least_bytes(const WorkloadKind& kind, WorkloadOptions options) {
  options.compile.memory = 1;
  try {
    return planned_bytes(kind, options);
  } catch (const StepTooLarge& error) {
    return error.least_bytes;
  }
}

// Runs one step that is not timed, then `steps` timed ones. `losses` receives the losses of all.
MemoryPoint run(const WorkloadKind& kind, const WorkloadOptions& options, int steps,
                std::vector<double>& losses) {
  std::unique_ptr<Workload> workload = make_workload(kind, options);
  losses = {workload->step()};
  std::vector<double> seconds;
  for (int i = 0; i < steps; ++i) {
    Stopwatch watch;
    losses.push_back(workload->step());
    seconds.push_back(watch.milliseconds() / 1000);
  }
  const Executable& executable = workload->executable();
  const Plan& plan = executable.plan();
  const size_t outside = bytes_outside_arena(plan);
  auto rematerialized = std::ranges::count_if(
      plan.launches, [](const Launch& launch) { return launch.rematerialized; });
  return {.budget = options.compile.memory,
          .planned = outside + plan.arena_bytes,
          .used = outside + executable.used_arena_bytes(),
          .kernels = plan.launches.size(),
          .rematerialized = static_cast<size_t>(rematerialized),
          .seconds = median(std::move(seconds))};
}
}  // namespace

std::vector<MemoryPoint> memory_curve(const WorkloadKind& kind, const WorkloadOptions& options,
                                      int points, int steps) {
  const size_t most = planned_bytes(kind, options), least = least_bytes(kind, options);
  std::vector<double> losses, limited;
  std::vector<MemoryPoint> curve{run(kind, options, steps, losses)};
  curve[0].budget = most;
  curve[0].same_losses = true;
  for (int i = 1; i < points; ++i) {
    const double part = static_cast<double>(i) / (points - 1);
    WorkloadOptions at = options;
    at.compile.memory = most - static_cast<size_t>(part * static_cast<double>(most - least));
    curve.push_back(run(kind, at, steps, limited));
    curve.back().same_losses = limited == losses;
  }
  return curve;
}

std::string to_table(const std::vector<MemoryPoint>& points) {
  Table table({">budget", ">planned", ">used", ">kernels", ">recomputed", ">ms per step",
               ">relative", "losses"});
  auto size = [](size_t bytes) { return train::bytes_text(static_cast<double>(bytes)); };
  for (const MemoryPoint& point : points)
    table.row({size(point.budget), size(point.planned),
               point.used == point.planned ? "as planned" : size(point.used),
               fmt::format("{}", point.kernels), fmt::format("{}", point.rematerialized),
               fmt::format("{:.1f}", 1e3 * point.seconds),
               fmt::format("{:.2f}", point.seconds / points.front().seconds),
               point.same_losses ? "bit-identical" : "DIFFERENT"});
  return table.text();
}

}  // namespace weft::cli
