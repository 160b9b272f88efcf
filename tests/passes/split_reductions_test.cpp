#include <doctest/doctest.h>

#include "tests/passes/graphs.h"
#include "tests/support/interpreter.h"
#include "weft/ir/op_def.h"
#include "weft/ops/ops.h"
#include "weft/passes/passes.h"

using namespace weft;
using namespace weft::testing;

namespace {
// Reductions of the graph, inputs before users.
std::vector<Value> stages(const Value& value, const PassOptions& options = {}) {
  Graph graph = split_reductions({.outputs = {value}}, options);
  verify(graph);
  std::vector<Value> found;
  for (const Value& node : graph.nodes())
    if (node->op->kind == OpKind::reduce) found.push_back(node);
  return found;
}
Value leaf(const Shape& shape, DType dtype = DType::f32) { return input({dtype, shape}, 0); }
}  // namespace

TEST_SUITE("split") {
  TEST_CASE("column sums to few elements have a first stage with work for many threads") {
    for (const Value& y :
         {sum(leaf({131072, 16}), {.axes = {0}}), sum(leaf({300, 400})),
          sum(leaf({32, 8, 28, 28}), {.axes = {0, 2, 3}}), max(leaf({4096, 100}), {.axes = {0}})}) {
      std::vector<Value> found = stages(y);
      REQUIRE(found.size() == 2);
      CHECK(found[0].elements() / y.elements() >= 16);
      CHECK(found[0].elements() / y.elements() <= 64);
      CHECK(found[1].elements() == y.elements());
    }
  }

  TEST_CASE(
      "the first stage reads a view that splits one axis, whatever the layout of the others") {
    std::vector<Value> found = stages(sum(leaf({32, 8, 28, 28}), {.axes = {0, 2, 3}}));
    Value chunked = found[0]->inputs[0];
    REQUIRE(chunked->is("reshape"));
    CHECK(chunked.shape() == Shape{32, 1, 8, 28, 28});
  }

  TEST_CASE("small reductions, rows, and wide columns stay whole") {
    CHECK(stages(sum(leaf({100, 16}), {.axes = {0}})).size() == 1);
    CHECK(stages(sum(leaf({1024, 4096}), {.axes = {1}})).size() == 1);
    CHECK(stages(sum(leaf({8192, 768}), {.axes = {0}})).size() == 1);
    CHECK(stages(sum(leaf({65537, 16}), {.axes = {0}})).size() == 1);  // a prime number of rows
    CHECK(stages(argmax(leaf({131072, 16}), 0)).size() == 1);
  }

  TEST_CASE("the chunks depend on the shape alone") {
    Value y = sum(leaf({131072, 16}), {.axes = {0}});
    Shape one = stages(y, {.threads = 1})[0].shape(), many = stages(y, {.threads = 64})[0].shape();
    CHECK(one == many);
  }

  TEST_CASE("partial sums of 16-bit floats stay in float32") {
    std::vector<Value> found = stages(sum(leaf({131072, 16}, DType::bf16), {.axes = {0}}));
    CHECK(found[0].dtype() == DType::f32);
    CHECK(found[1].dtype() == DType::f32);
    CHECK(stages(max(leaf({131072, 16}, DType::bf16), {.axes = {0}}))[0].dtype() == DType::bf16);
  }

  TEST_CASE("two stages give the same sums, extremes and products") {
    Random random(1);
    Value x = random_values({DType::f32, {640, 60}}, -1, 1, random);
    Value k = random_values({DType::i32, {640, 60}}, -9, 9, random);
    Value near_one = random_values({DType::f32, {640, 60}}, 0.999, 1.001, random);
    for (const Value& y : {sum(x, {.axes = {0}}), max(x, {.axes = {0}}), min(x), sum(x), sum(k),
                           sum(k, {.axes = {0}}), prod(near_one, {.axes = {0}})}) {
      Graph graph{.outputs = {y}};
      Value want = interpret(y);
      CHECK(stages(y).size() == 2);
      CHECK(difference(interpret(split_reductions(graph, {}).outputs[0]), want, 1e-5) == "");
      Value wrong = interpret(split_reductions(graph, {.fault = "split-drops-chunk"}).outputs[0]);
      if (y->inputs[0]->is("sum")) CHECK(difference(wrong, want, 1e-5) != "");
    }
  }
}
