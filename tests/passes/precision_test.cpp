#include <doctest/doctest.h>

#include "tests/passes/graphs.h"
#include "tests/support/interpreter.h"
#include "tests/support/planned.h"
#include "tests/support/random_graph.h"
#include "weft/ir/op_def.h"
#include "weft/ops/ops.h"
#include "weft/passes/passes.h"
#include "weft/tensor/tensor.h"

using namespace weft;
using namespace weft::testing;

namespace {
Graph narrowed(const Graph& graph, DType narrow, const std::string& fault = "") {
  Graph result = narrow == DType::f32 ? precision(graph, {.fault = fault})
                                      : narrow_products(graph, narrow, {.fault = fault});
  verify(result);
  return result;
}
// Returns "" if the graph means the same with its products in float64, which rounds nothing.
std::string change_by_narrowing(const Graph& graph, std::span<const Value> inputs,
                                const std::string& fault = "") {
  std::vector<Value> got = interpret(narrowed(graph, DType::f64, fault), inputs);
  std::vector<Interpreted> want = interpret_with_errors(graph, inputs);
  return disagreement(got, want, *backends().back());
}
}  // namespace

TEST_CASE("mixed precision changes the types of a step and preserves its meaning") {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    RandomGraph drawn = random_graph(seed);
    CAPTURE(seed);
    CHECK(change_by_narrowing(drawn.graph, drawn.inputs) == "");
  }
  Random random(1);
  for (const Graph& step : {mlp_step(2, 8, 4), conv_step(2, 4, 2), gpt_step(2, 16, 2, 8)})
    CHECK(change_by_narrowing(step, random_inputs(step, random)) == "");
}

TEST_CASE("a seeded wrong sign in mixed precision's rounding is detected") {
  Random random(1);
  Graph step = mlp_step(2, 8, 4);
  CHECK(change_by_narrowing(step, random_inputs(step, random), "precision-negates") != "");
}

TEST_CASE("under mixed precision products take the narrow type and state stays float32") {
  for (const Graph& step : {mlp_step(2, 8, 4), conv_step(2, 4, 2), gpt_step(2, 16, 2, 8)}) {
    Graph mixed = narrowed(step, DType::bf16);
    int narrow = 0, sums = 0;
    for (const Value& value : mixed.nodes()) {
      if (value->op->kind != OpKind::contraction) continue;
      for (const Value& input : value->inputs) CHECK(input.dtype() == DType::bf16);
      ++(value.dtype() == DType::bf16 ? narrow : sums);
    }
    CHECK(narrow > 0);
    CHECK(sums > 0);  // gradients of weights
    for (size_t i = 0; i < step.assignments.size(); ++i)
      CHECK(mixed.assignments[i].value.type() == step.assignments[i].value.type());
    for (size_t i = 0; i < step.outputs.size(); ++i)
      CHECK(mixed.outputs[i].type() == step.outputs[i].type());
  }
}

TEST_CASE("an activation that a product reads is rounded for all readers and a parameter is not") {
  Variable weight("w", {DType::f32, {4, 4}});
  Value x = input({DType::f32, {4, 4}}, 0), h = tanh(x);
  Value w = weight.value();
  Graph graph{.inputs = {x}, .outputs = {matmul(h, w), h, w}, .assignments = {}};
  Graph mixed = narrowed(graph, DType::bf16);
  const Value &product = mixed.outputs[0], &activation = mixed.outputs[1];
  CHECK(product->attrs.has("wide"));
  REQUIRE(activation->is("cast"));
  CHECK(activation->inputs[0].node() == product->inputs[0].node());
  CHECK(mixed.outputs[2].node() == w.node());
}

TEST_CASE("transposes and slices of rounded values move the narrow elements") {
  Value x = input({DType::f32, {4, 4}}, 0), y = input({DType::f32, {4, 4}}, 1);
  Value h = matmul(x, y);
  Graph graph{
      .inputs = {x, y}, .outputs = {matmul(transpose(h), y), flip(h, {0})}, .assignments = {}};
  Graph mixed = narrowed(graph, DType::bf16);
  const Value& moved = mixed.outputs[0]->inputs[0];
  CHECK(moved->is("permute"));
  CHECK(moved->inputs[0]->is("matmul"));
  // A value that no product reads is also moved before it is widened.
  REQUIRE(mixed.outputs[1]->is("cast"));
  CHECK(mixed.outputs[1]->inputs[0]->is("flip"));
  CHECK(mixed.outputs[1]->inputs[0]->inputs[0].node() == moved->inputs[0].node());
}

TEST_CASE("mixed precision leaves float64 graphs unchanged and so does full precision") {
  Value x = input({DType::f64, {4, 4}}, 0);
  Graph graph{.inputs = {x}, .outputs = {matmul(x, x)}, .assignments = {}};
  CHECK(structural_hash(narrowed(graph, DType::bf16)) == structural_hash(graph));
  Graph step = mlp_step(1, 4, 2);
  CHECK(structural_hash(narrowed(step, DType::f32)) == structural_hash(step));
}
