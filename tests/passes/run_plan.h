// Runs a plan unchanged on a real arena: each launch loads its operands by slot, offset and
// strides, evaluates its body on the reference kernels and stores its results. A wrong offset,
// launch order or live range shows in the results.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "weft/ir/bindings.h"
#include "weft/passes/passes.h"

namespace weft::testing {

struct PlanResult {
  std::vector<Value> outputs;             // data leaves
  std::map<std::string, Value> assigned;  // new values of variables, by name
};

// Returns the options of a verified plan for the last backend under test.
PassOptions on_cpu();

// Runs `plan` on data leaves, in an arena of arbitrary bytes; leaves the variables unchanged.
PlanResult run_plan(const BoundPlan& plan, std::span<const Value> inputs = {});

// Runs the graph's plan on random inputs; returns "" if it computes what the graph means.
std::string plan_disagreement(const Graph& graph, const PassOptions& options, uint64_t seed,
                              double tolerance = 1e-5);

// Returns the minimum in bytes that the planner's error names when no plan fits the memory limit.
size_t least_by_refusal(const Graph& step, PassOptions options);

}  // namespace weft::testing
