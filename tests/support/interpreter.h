// Evaluates a graph node by node on the reference kernels, with dense row-major values, without
// passes, plan or arena: the oracle for planned execution.
#pragma once

#include <span>
#include <vector>

#include "tests/support/rounding.h"
#include "weft/ir/graph.h"

namespace weft::testing {

// Return "data" leaves with the values of graph.roots(); variables stay unchanged. `inputs` are
// data leaves.
std::vector<Value> interpret(const Graph& graph, std::span<const Value> inputs = {});
Value interpret(const Value& value);
std::vector<Value> interpret(std::span<const Value> values);

// Also computes how far each element of a correct backend may deviate.
struct Interpreted {
  Value value;
  Errors allowed;
};
std::vector<Interpreted> interpret_with_errors(const Graph& graph,
                                               std::span<const Value> inputs = {});

}  // namespace weft::testing
