// Runs a plan unchanged on a real arena: each launch loads its operands by slot, offset and
// strides, evaluates its body on the reference kernels and stores its results. A wrong offset,
// launch order or live range shows in the results.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "weft/ir/plan.h"
#include "weft/passes/passes.h"

namespace weft::testing {

struct PlanResult {
  std::vector<Value> outputs;             // data leaves
  std::map<std::string, Value> assigned;  // new values of variables, by name
};

// Runs `plan` on data leaves, in an arena of arbitrary bytes; leaves the variables unchanged.
PlanResult run_plan(const Plan& plan, std::span<const Value> inputs = {});

// Returns the minimum in bytes that the planner's error names when no plan fits the memory limit.
size_t least_by_refusal(const Graph& step, PassOptions options);

}  // namespace weft::testing
