// Evaluates a graph node by node on the reference kernels, every value dense and row-major: no
// pass, no plan, no arena. What the planned path must agree with.
#pragma once

#include <span>
#include <vector>

#include "weft/ir/graph.h"

namespace weft::testing {

// "data" leaves with the values of graph.roots(); changes no variable. `inputs` are data leaves.
std::vector<Value> interpret(const Graph& graph, std::span<const Value> inputs = {});
Value interpret(const Value& value);
std::vector<Value> interpret(std::span<const Value> values);

}  // namespace weft::testing
