// Tests the composite that a value is annotated with while passes rewrite the expression.
#include <algorithm>
#include <cmath>
#include <string>
#include <unordered_set>
#include <vector>

#include <doctest/doctest.h>

#include "tests/passes/graphs.h"
#include "tests/support/interpreter.h"
#include "tests/support/values.h"
#include "weft/ir/op_def.h"
#include "weft/ops/autodiff.h"
#include "weft/ops/ops.h"
#include "weft/passes/passes.h"

using namespace weft;
using namespace weft::testing;

namespace {
PlanningLibrary with_gelu() {
  PlanningLibrary library;
  library.epilogues = {"gelu_tanh", "gelu_tanh_gradient"};
  return library;
}
// Returns a graph with a product, its GELU and the gradients of both.
Graph step() {
  const Value x = input({DType::f32, {8, 12}}, 0), w = input({DType::f32, {12, 10}}, 1);
  const Value by_row = sum(gelu_tanh(matmul(x, w) + 1.0) * 0.5, {.axes = {1}});
  const Value loss = sum(square(by_row));
  const std::vector<Value> wanted{w};
  return {.inputs = {x, w}, .outputs = {loss, gradients(loss, wanted)[0]}};
}
std::vector<Value> known(const Graph& graph) {
  std::vector<Value> found = graph.nodes();
  std::erase_if(found, [](const Value& value) { return !value->annotations.composite.defined(); });
  return found;
}
// Returns the names of the annotated composites; checks that each computes its value, from operands
// in the graph.
std::string composites_of(const Graph& graph) {
  std::unordered_set<const Node*> nodes;
  for (const Value& value : graph.nodes()) nodes.insert(value.node());
  Graph both{.inputs = graph.inputs, .outputs = {}};
  std::string names;
  for (const Value& value : known(graph)) {
    const Value& composite = value->annotations.composite;
    for (const Value& operand : composite->inputs) CHECK(nodes.contains(operand.node()));
    names += std::string(composite->op->name) + " ";
    both.outputs.insert(both.outputs.end(), {value, composite});
  }
  Random random(3);
  std::vector<Value> inputs;
  inputs.reserve(graph.inputs.size());
  for (const Value& leaf : graph.inputs)
    inputs.push_back(random_values(leaf.type(), -1, 1, random));
  const std::vector<Value> results = interpret(both, inputs);
  for (size_t i = 0; i < results.size(); i += 2) {
    const std::vector<double> got = results[i].to_doubles(), want = results[i + 1].to_doubles();
    double error = 0;
    for (size_t at = 0; at < got.size(); ++at)
      error = std::max(error, std::abs(got[at] - want[at]) / (1 + std::abs(want[at])));
    CHECK(error < 1e-5);
  }
  return names;
}
}  // namespace

TEST_SUITE("composites") {
  TEST_CASE("a composite's annotation survives decomposition and simplification") {
    const PlanningLibrary library = with_gelu();
    const PassOptions options{.library = &library};
    const Graph expanded = decompose(step(), options), simple = simplify(expanded, options);
    verify(simple);
    CHECK(composites_of(expanded) == "gelu_tanh gelu_tanh_gradient ");
    CHECK(composites_of(simple) == "gelu_tanh gelu_tanh_gradient ");
    CHECK(simple.nodes().size() < expanded.nodes().size());
    CHECK(to_text(simple).find(", composite=gelu_tanh_gradient)") != std::string::npos);
  }

  TEST_CASE("composites that no library overrides are not annotated") {
    const PlanningLibrary library;
    CHECK(known(decompose(step(), {.library = &library})).empty());
  }

  TEST_CASE("a gradient of compressed activations is annotated with the compressed operand") {
    const PlanningLibrary library = with_gelu();
    const PassOptions options{.library = &library, .step = {.activations = DType::bf16}};
    const Graph kept = compression(simplify(decompose(step(), options), options), options);
    verify(kept);
    // These are the forward pass, its recomputation from the compressed operand, and the gradient.
    CHECK(composites_of(kept) == "gelu_tanh gelu_tanh gelu_tanh_gradient ");
    const Value forward = known(kept).front(), backward = known(kept).back();
    CHECK(forward->annotations.composite->inputs[0].node() !=
          backward->annotations.composite->inputs[0].node());
  }

  TEST_CASE("each tile of rows is annotated with its own rows") {
    const PlanningLibrary library = with_gelu();
    const PassOptions options{.library = &library, .step = {.row_tiles = 2}, .tile_anywhere = true};
    const Graph simple = simplify(decompose(step(), options), options);
    const Graph parts = row_tiling(simple, options);
    verify(parts);
    REQUIRE(parts.nodes().size() > simple.nodes().size());
    CHECK(composites_of(parts) == "gelu_tanh gelu_tanh_gradient gelu_tanh gelu_tanh_gradient ");
    for (const Value& value : known(parts)) CHECK(value.dim(0) == 4);
  }

  TEST_CASE("a rebuilt node with other inputs loses its composite annotation") {
    const PlanningLibrary library = with_gelu();
    const Value y = known(decompose(step(), {.library = &library})).front();
    std::vector<Value> inputs;
    for (const Value& operand : y->inputs) inputs.push_back(input(operand.type(), 2));
    CHECK(!rebuild(*y.node(), inputs)->annotations.composite.defined());
  }
}
