#include <doctest/doctest.h>

#include "tests/passes/graphs.h"
#include "tests/passes/run_plan.h"
#include "tests/support/planned.h"
#include "weft/ir/op_def.h"
#include "weft/ops/autodiff.h"
#include "weft/ops/ops.h"
#include "weft/passes/graph/rows.h"
#include "weft/passes/passes.h"

using namespace weft;
using namespace weft::testing;

namespace {
PassOptions in_row_tiles(int chunks) {
  PassOptions options = on_cpu();
  options.step.row_tiles = chunks;
  return options;
}
Graph ready_to_tile(const Graph& graph) { return simplify(decompose(graph, on_cpu()), on_cpu()); }
int64_t widest(const Graph& graph) {
  int64_t elements = 0;
  for (const Value& value : graph.nodes())
    if (value->is("matmul")) elements = std::max(elements, value.elements());
  return elements;
}

// Builds the head of a language model: logits of rows [batch, length, width], loss, one update.
struct Head {
  Value x, labels, weight;
  Graph graph;
  Head(int64_t batch, int64_t length, int64_t width, int64_t vocabulary, bool bias = false,
       DType dtype = DType::f32) {
    Random random(3);
    x = random_variable("x", {DType::f32, {batch, length, width}}, random);
    weight = random_variable("weight", {DType::f32, {vocabulary, width}}, random);
    labels = input({DType::i64, {batch, length}}, 0);
    Value offsets = random_variable("bias", {DType::f32, {vocabulary}}, random);
    Value logits =
        linear(cast(tanh(x), dtype), cast(weight, dtype), bias ? cast(offsets, dtype) : Value());
    Value loss = cross_entropy(logits, labels);
    std::vector<Value> wanted{x, weight};
    if (bias) wanted.push_back(offsets);
    std::vector<Value> all = gradients(loss, wanted);
    graph = {.inputs = {labels}, .outputs = {loss}, .assignments = {}};
    for (size_t i = 0; i < all.size(); ++i)
      graph.assignments.push_back({wanted[i], wanted[i] - 0.1 * all[i]});
  }
};

std::vector<Value> run(const Graph& graph, const PlanSettings& settings) {
  Random random(5);
  return run_planned(graph, random_inputs(graph, random), *backends().back(), settings);
}
PlanSettings into(int chunks) {
  PlanSettings settings{};
  settings.step.row_tiles = chunks;
  settings.anywhere = false;
  return settings;
}
}  // namespace

TEST_CASE("row tiling keeps outputs and updates bit-identical") {
  // The rows span two axes, are no multiple of the least tile, or are cut into the most tiles.
  for (const Graph& graph : {Head(2, 512, 96, 1000).graph, Head(1, 1100, 64, 1500).graph,
                             gpt_step(1, 64, 4, 256, 1000)}) {
    const std::vector<Value> whole = run(graph, into(1));
    for (int chunks : {2, 3, 4, 64}) {
      CAPTURE(chunks);
      CHECK(count_of(row_tiling(ready_to_tile(graph), in_row_tiles(chunks)), "matmul_add") ==
            std::min(chunks, 4) - 1);
      const std::vector<Value> parts = run(graph, into(chunks));
      REQUIRE(parts.size() == whole.size());
      for (size_t i = 0; i < whole.size(); ++i) CHECK(difference(parts[i], whole[i], 0) == "");
    }
  }
}

// The library computes sums of 16-bit products, and row tiles add up in float32, so the last digit
// of the weight's gradient may differ.
TEST_CASE("row tiling of 16-bit products agrees to 1e-6") {
  for (DType dtype : {DType::bf16, DType::f16}) {
    const Graph graph = Head(2, 512, 96, 1000, false, dtype).graph;
    CHECK(count_of(row_tiling(ready_to_tile(graph), in_row_tiles(4)), "matmul_add") == 3);
    const std::vector<Value> whole = run(graph, into(1)), parts = run(graph, into(4));
    for (size_t i = 0; i < whole.size(); ++i) CHECK(difference(parts[i], whole[i], 1e-6) == "");
  }
}

TEST_CASE("tiled logits never exist whole and the plan shrinks by their bytes") {
  const Graph graph = Head(2, 1024, 32, 4000).graph;
  const auto logits = static_cast<double>(2 * 1024 * 4000 * sizeof(float));
  const Plan whole = make_plan(graph, in_row_tiles(1));
  for (int chunks : {2, 4, 8}) {
    const Graph parts = row_tiling(ready_to_tile(graph), in_row_tiles(chunks));
    CHECK(widest(parts) == 2 * 1024 * 4000 / chunks);
    const Plan plan = make_plan(graph, in_row_tiles(chunks));
    const double saved = static_cast<double>(whole.arena_bytes - plan.arena_bytes);
    CAPTURE(chunks);
    CHECK(saved > 0.95 * logits * (1 - 1.0 / chunks));
  }
}

TEST_CASE("a step is not tiled where its widest rows are read whole or sums would change order") {
  auto alone = [](const Graph& graph) {
    const Graph before = ready_to_tile(graph), after = row_tiling(before, in_row_tiles(4));
    return structural_hash(before) == structural_hash(after);
  };
  CHECK(alone(mlp_step(3, 512, 2048)));
  CHECK(alone(conv_step(2, 8, 8)));
  CHECK(alone(Head(1, 2048, 64, 1000, true).graph));  // the gradient of the bias sums over rows
  CHECK(alone(Head(1, 511, 64, 4000).graph));         // too few rows for two tiles
  Head kept(1, 2048, 64, 1000);
  kept.graph.outputs.push_back(linear(tanh(kept.x), kept.weight));
  CHECK(alone(kept.graph));
  CHECK(!alone(Head(1, 2048, 64, 1000).graph));
}

TEST_CASE("tiles of a product keep the whole's permission to round") {
  const Graph head = Head(2, 512, 96, 1000).graph;
  PassOptions options = in_row_tiles(4);
  options.step.precision = Precision::tf32;
  const Graph parts =
      row_tiling(simplify(decompose(precision(head, options), options), options), options);
  CHECK(count_of(parts, "matmul_add") == 3);
  for (const Value& value : parts.nodes())
    if (value->is("matmul") || value->is("matmul_add")) CHECK(value->annotations.tf32);
}

TEST_CASE("a narrower product is tiled where the widest must stay whole") {
  Random random(2);
  Head head(2, 512, 96, 1000);
  Value z = random_variable("z", {DType::f32, {1024, 1100}}, random);
  Value weight = random_variable("w", {DType::f32, {1100, 1200}}, random);
  head.graph.outputs.push_back(matmul(exp(z), weight));
  CHECK(count_of(row_tiling(ready_to_tile(head.graph), in_row_tiles(4)), "matmul_add") == 3);
}

TEST_CASE("a value that depends on all rows is excluded from a tiled region") {
  Random random(1);
  Value x = random_variable("x", {DType::f32, {1024, 64}}, random);
  Value weight = random_variable("w", {DType::f32, {64, 2000}}, random);
  Value y = exp(matmul(x, weight)), total = sum(y, {.axes = {1}, .keepdim = true});
  Graph each{.inputs = {}, .outputs = {sum(y / total * 2.0, {.axes = {1}})}, .assignments = {}};
  Graph all{.inputs = {}, .outputs = {sum(y / sum(total), {.axes = {1}})}, .assignments = {}};
  CHECK(widest(row_tiling(ready_to_tile(each), in_row_tiles(2))) == 512 * 2000);
  CHECK(widest(row_tiling(ready_to_tile(all), in_row_tiles(2))) == 1024 * 2000);
  const std::vector<Value> whole = run(each, into(1)), parts = run(each, into(2));
  CHECK(difference(parts[0], whole[0], 0) == "");
}

TEST_CASE("rows that are groups of a convolution are counted by the tile's attribute") {
  Random random(1);
  const Value x = random_variable("x", {DType::f32, {2, 6, 5, 5}}, random);
  const Value each = random_variable("each", {DType::f32, {6, 1, 3, 3}}, random);
  const Value pairs = random_variable("pairs", {DType::f32, {6, 2, 3, 3}}, random);
  const Value y = conv(x, each, {}, {.groups = 6});
  CHECK(reads_by_row(*y.node(), 2, 6) == std::vector<int64_t>{2, 1});
  const Value tile =
      for_rows(*y.node(), {rows_of(x, 2, 6, 2, 3), rows_of(each, 1, 6, 2, 3)}, 2, 6, 2, 3);
  CHECK(tile->attrs.integer("groups") == 3);
  Graph graph{.inputs = {}, .outputs = {slice(y, 1, 2, 5), tile}, .assignments = {}};
  const std::vector<Value> values = interpret(graph);
  CHECK(difference(values[1], values[0], 0) == "");
  // An axis of three groups with two channels each is no row axis, as tiles could cut a group.
  CHECK(!reads_by_row(*conv(x, pairs, {}, {.groups = 3}).node(), 2, 6).has_value());
}

TEST_CASE("tiles of random numbers hold those of the whole tensor") {
  Random random(1);
  Value x = random_variable("x", {DType::f32, {2, 512, 64}}, random);
  Value weight = random_variable("w", {DType::f32, {64, 2000}}, random);
  const RandomKey key{.step = scalar(5, DType::i64), .seed = 7, .stream = 3};
  Value y = dropout(matmul(x, weight), 0.25, key);
  Graph graph{.inputs = {}, .outputs = {sum(y, {.axes = {2}})}, .assignments = {}};
  CHECK(widest(row_tiling(ready_to_tile(graph), in_row_tiles(2))) == 512 * 2000);
  const std::vector<Value> whole = run(graph, into(1)), parts = run(graph, into(2));
  CHECK(difference(parts[0], whole[0], 0) == "");
}

TEST_CASE("tiles of indices continue those of the whole tensor") {
  Random random(1);
  Value x = random_variable("x", {DType::f32, {1024, 64}}, random);
  Value weight = random_variable("w", {DType::f32, {64, 2000}}, random);
  const Value rows = iota({1024, 2000}, 0, DType::f32), columns = iota({1024, 2000}, 1, DType::f32);
  const Value y = select(columns <= rows, matmul(x, weight) + rows, 0);  // a causal mask
  Graph graph{.inputs = {}, .outputs = {sum(y, {.axes = {1}})}, .assignments = {}};
  CHECK(widest(row_tiling(ready_to_tile(graph), in_row_tiles(2))) == 512 * 2000);
  const std::vector<Value> whole = run(graph, into(1)), parts = run(graph, into(2));
  CHECK(difference(parts[0], whole[0], 0) == "");
  CHECK(difference(parts[0], interpret(graph)[0], 1e-3) == "");
}

TEST_CASE("a memory limit below the untiled plan is met by bit-identical tiling") {
  const Graph graph = gpt_step(2, 64, 8, 256, 2000);
  PassOptions options = on_cpu();
  auto bytes = [](const Plan& plan) {
    size_t total = plan.arena_bytes;
    for (const Slot& slot : plan.slots) total += slot.space == Space::arena ? 0 : slot.bytes;
    return total;
  };
  options.step.recompute = Recompute::full;
  options.step.row_tiles = 1;
  const size_t least_whole = bytes(make_plan(graph, options));
  options.step.row_tiles = 8;
  const size_t least_parts = bytes(make_plan(graph, options));
  CHECK(static_cast<double>(least_parts) < 0.8 * static_cast<double>(least_whole));
  PlanSettings settings = into(0);
  settings.step.memory = (least_whole + least_parts) / 2;
  options = on_cpu();
  options.step.memory = settings.step.memory;
  CHECK(bytes(make_plan(graph, options)) <= settings.step.memory);
  const std::vector<Value> whole = run(graph, into(1)), limited = run(graph, settings);
  for (size_t i = 0; i < whole.size(); ++i) CHECK(difference(limited[i], whole[i], 0) == "");
  // A plan exists for the least memory that the error names.
  const size_t named = least_by_refusal(graph, options);
  CHECK(static_cast<double>(named) < 1.05 * static_cast<double>(least_parts) + (1 << 17));
  options.step.memory = named;
  CHECK(bytes(make_plan(graph, options)) <= options.step.memory);
}

TEST_CASE("without a memory limit nothing is tiled") {
  const Graph graph = Head(1, 2048, 64, 1000).graph;
  CHECK(content_hash(make_plan(graph, in_row_tiles(0))) ==
        content_hash(make_plan(graph, in_row_tiles(1))));
  CHECK(content_hash(make_plan(graph, in_row_tiles(0))) !=
        content_hash(make_plan(graph, in_row_tiles(2))));
}
