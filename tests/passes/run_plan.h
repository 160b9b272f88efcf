// Runs a plan as it stands, on a real arena: each step loads its operands from where they lie,
// evaluates its body on the reference kernels, and stores its results. A wrong offset, order or
// lifetime shows in the numbers.
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

// `inputs` are data leaves. The arena starts as noise; variables themselves are not changed.
PlanResult run_plan(const Plan& plan, std::span<const Value> inputs = {});

// What the refusal of a limit that nothing meets names as the least, in bytes.
size_t least_by_refusal(const Graph& step, PassOptions options);

}  // namespace weft::testing
