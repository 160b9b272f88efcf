// What a step costs in time for each byte that it may not have: budgets from what it takes as it
// is, down to the least that it can run in. For `weft bench --memory-curve`.
#pragma once

#include <string>
#include <vector>

#include "weft/cli/workloads.h"

namespace weft::cli {

// All bytes are those of state, constants and arena together, as StepOptions::memory counts
// them.
struct MemoryPoint {
  size_t budget = 0, planned = 0, used = 0;
  size_t kernels = 0, again = 0;  // and those of them that run again
  double seconds = 0;             // of a step, median
  bool same_losses = false;       // to the bit, as without a budget, at every step
};

// Plans and runs `points` budgets (two at least), spread evenly, each on a model of its own from
// equal weights, for so many timed steps. The first is what the step takes without a budget.
std::vector<MemoryPoint> memory_curve(const WorkloadKind& kind, const WorkloadOptions& options,
                                      int points, int steps);

std::string to_table(const std::vector<MemoryPoint>& points);

}  // namespace weft::cli
