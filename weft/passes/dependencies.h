// Which steps of a plan must stay in their order: those that touch the same bytes, if one of them
// writes.
#pragma once

#include <span>
#include <vector>

#include "weft/ir/plan.h"

namespace weft {

// Predecessors and successors of the steps of a plan, by index. The order of its steps must be a
// valid one.
struct Dependencies {
  std::vector<std::vector<int>> before, after;  // of each step, each once
  explicit Dependencies(const Plan& plan);
  void add(int earlier, int later);
};

// The order, closest to the present one, that all edges allow.
std::vector<int> stable_order(const Dependencies& edges);
// The same plan with its steps in `order`.
Plan reordered(Plan plan, std::span<const int> order);

}  // namespace weft
