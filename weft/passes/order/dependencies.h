// Declares the dependencies between the launches of a plan: two launches keep their order if they
// touch the same bytes and one of them writes.
#pragma once

#include <span>
#include <vector>

#include "weft/ir/plan.h"

namespace weft {

// Dependencies are the predecessors and successors of each launch, by index. The plan's order, or
// the one given, must be valid; launches that it leaves out have none.
struct Dependencies {
  std::vector<std::vector<int>> before, after;  // indices for each launch, without duplicates
  explicit Dependencies(const Plan& plan);
  Dependencies(const Plan& plan, std::span<const int> order);
  void add(int earlier, int later);
};

// Returns the valid order that is closest to the present one.
std::vector<int> stable_order(const Dependencies& edges);
// Returns the plan with its launches in `order`, without those that it leaves out.
Plan reordered(Plan plan, std::span<const int> order);

}  // namespace weft
