// Measures the time of a step over its memory budget for `weft bench --memory-curve`, from the
// memory that it needs without a limit down to the least that it can run in.
#pragma once

#include <string>
#include <vector>

#include "weft/cli/measure/workloads.h"

namespace weft::cli {

// A MemoryPoint is a point of the curve. Its bytes are the sum of state, constants and arena, as
// StepOptions::memory counts them.
struct MemoryPoint {
  size_t budget = 0, planned = 0, used = 0;
  size_t kernels = 0, rematerialized = 0;  // kernels in total, and kernels that recompute
  double seconds = 0;                      // median seconds of a step
  bool same_losses = false;                // bitwise equal to the first budget's, at every step
};

// Plans and runs `points` budgets (at least two), evenly spaced, each on its own model with equal
// initial weights, for `steps` timed steps. The first budget is the step's memory without a limit.
std::vector<MemoryPoint> memory_curve(const WorkloadKind& kind, const WorkloadOptions& options,
                                      int points, int steps);

std::string to_table(const std::vector<MemoryPoint>& points);

}  // namespace weft::cli
