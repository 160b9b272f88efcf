#include <doctest/doctest.h>

#include "tests/passes/graphs.h"
#include "tests/support/interpreter.h"
#include "weft/ir/op_def.h"
#include "weft/ops/ops.h"
#include "weft/passes/passes.h"

using namespace weft;
using namespace weft::testing;

namespace {
int composites(const Graph& graph) {
  int count = 0;
  for (const Value& value : graph.nodes()) count += value->op->kind == OpKind::composite;
  return count;
}
}  // namespace

TEST_SUITE("decompose") {
  TEST_CASE("decomposition leaves only primitives at any depth of nesting") {
    Graph graph = gpt_step(1, 16, 1, 4);
    REQUIRE(composites(graph) > 5);
    Graph result = decompose(graph, {});
    verify(result);
    CHECK(composites(result) == 0);
  }

  TEST_CASE("composites with a library kernel are not decomposed") {
    PlanningLibrary library;
    library.overrides = {"softmax", "gelu"};
    Value x = input({DType::f32, {4, 8}}, 0);
    Graph graph{.inputs = {x}, .outputs = {gelu(softmax(silu(x)))}};
    Graph result = decompose(graph, {.library = &library});
    CHECK(composites(result) == 2);
    CHECK(result.outputs[0]->is("gelu"));
    CHECK(result.outputs[0]->inputs[0]->is("softmax"));
  }

  TEST_CASE("decomposed expressions keep the module and line of the composite") {
    Value x = input({DType::f32, {4, 8}}, 0);
    Value y;
    {
      OriginScope scope("blocks.3.mlp", {"model.cpp", 12});
      y = gelu(x);
    }
    Value z = decompose({.inputs = {x}, .outputs = {y}}, {}).outputs[0];
    CHECK(z->module() == "blocks.3.mlp");
    CHECK(z->origin.where.line == 12);
  }

  TEST_CASE("decomposition preserves a training step's results") {
    Graph graph = mlp_step(2, 6, 3);
    Random random(1);
    std::vector<Value> inputs = random_inputs(graph, random);
    for (Value& value : inputs)
      if (is_integer(value.dtype()))
        value = constant(std::vector<double>{1, 5, 0}, {3}, DType::i64);
    std::vector<Value> want = interpret(graph, inputs),
                       got = interpret(decompose(graph, {}), inputs);
    std::vector<Value> wrong = interpret(decompose(graph, {.fault = "decompose-negates"}), inputs);
    for (size_t i = 0; i < want.size(); ++i) CHECK(difference(got[i], want[i], 1e-6) == "");
    CHECK(difference(wrong[0], want[0], 1e-6) != "");
  }
}
