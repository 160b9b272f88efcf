// Evaluates a graph node by node on the reference kernels, every value dense and row-major: no
// pass, no plan, no arena. What the planned path must agree with.
#pragma once

#include <span>
#include <vector>

#include "tests/support/rounding.h"
#include "weft/ir/graph.h"

namespace weft::testing {

// "data" leaves with the values of graph.roots(); changes no variable. `inputs` are data leaves.
std::vector<Value> interpret(const Graph& graph, std::span<const Value> inputs = {});
Value interpret(const Value& value);
std::vector<Value> interpret(std::span<const Value> values);

// The same, with how far a correct backend may lie from each element.
struct Interpreted {
  Value value;
  Errors allowed;
};
std::vector<Interpreted> interpret_with_errors(const Graph& graph,
                                               std::span<const Value> inputs = {});

}  // namespace weft::testing
