// Bindings give the slots of a plan their storage. A plan alone can be written, read and compared;
// bound to variables it can run, and one plan can be bound to several sets of variables.
#pragma once

#include <memory>
#include <vector>

#include "weft/ir/graph.h"
#include "weft/ir/plan.h"

namespace weft {

struct Bindings {
  std::vector<std::shared_ptr<VariableState>> variables;  // those of Plan::variables
  // The elements of constants, by slot; null for slots that hold no constant, and for constants
  // that kernels write themselves. Empty: the plan has none.
  std::vector<std::shared_ptr<Storage>> constants;

  // Returns the variable of a slot; null where the slot holds none.
  VariableState* variable(const Slot& slot) const {
    return slot.variable < 0 ? nullptr : variables[static_cast<size_t>(slot.variable)].get();
  }
};

struct BoundPlan {
  Plan plan;
  Bindings bindings;
  // The graph that was planned, whose values have the ids of the plan's, for those who draw it or
  // search through what the step computes; without roots unless they ask for it (PassOptions).
  Graph graph = {};
};

// Returns the index of a variable in a plan that is being made; adds the variable, after those that
// it is made from, if the plan does not have it yet.
int index_of(const VariableState& variable, std::vector<PlanVariable>& variables);

// Gives a plan that passes made values of its own: each launch gets copies of the nodes of its body
// and of the views, casts and copies that lead to its operands, and a leaf for every other value
// that it reads. The copies have the ids of the originals.
BoundPlan detached(Plan plan);

}  // namespace weft
