// Compares attention and its gradient, computed by one kernel each, with the interpreter's
// evaluation of their decompositions.
#include <cmath>
#include <cstdlib>
#include <vector>

#include <doctest/doctest.h>

#include "tests/support/interpreter.h"
#include "tests/support/planned.h"
#include "tests/support/threads.h"
#include "tests/support/values.h"
#include "weft/base/host/parallel.h"
#include "weft/ir/op_def.h"
#include "weft/ops/ops.h"
#include "weft/passes/passes.h"

namespace weft::testing {
namespace {
// Other devices are tested by these cases in slow tests, which have all forms.
const bool is_other_device = std::getenv("BACKEND") != nullptr;

struct AttentionGeometry {
  int64_t batch, heads, key_heads, queries, keys, depth, width;
};
const std::vector<AttentionGeometry> attention_geometries = {
    {2, 3, 3, 64, 64, 32, 32}, {1, 2, 2, 1, 1, 1, 1},    {2, 1, 1, 3, 3, 5, 5},
    {1, 4, 2, 17, 33, 16, 40}, {2, 2, 1, 40, 7, 3, 17},  {1, 1, 1, 100, 100, 64, 64},
    {1, 2, 2, 33, 33, 80, 80}, {1, 1, 1, 5, 1200, 4, 4}, {3, 6, 2, 31, 64, 33, 1},
    {1, 1, 1, 70, 70, 8, 8},   {2, 2, 2, 0, 0, 4, 4},    {2, 6, 2, 37, 37, 24, 24},
    {1, 4, 1, 70, 70, 16, 16},
};

std::string planned_kernels(const Graph& graph) {
  PassOptions options;
  options.library = backends().back();
  std::string names;
  for (const Launch& launch : make_plan(graph, options).launches) names += launch.kernel + " ";
  return names;
}

// Names the kernel of the gradient. GPU kernels read the logsumexp that the forward pass stored.
const char* gradient_kernel() {
  return backends().back()->on_host() ? "weft:attention_gradient" : "weft:attention_backward";
}

void check_attention(const Value& value, const char* kernel) {
  Graph graph;
  graph.outputs = {value};
  const KernelLibrary& cpu = *backends().back();
  INFO(to_text(graph));
  if (value.elements() > 0) CHECK(planned_kernels(graph).find(kernel) != std::string::npos);
  CHECK(disagreement(run_planned(graph, {}, cpu), interpret_with_errors(graph), cpu) == "");
}

// Returns whether quick tests have this form: each geometry has float32, causal and not, and one
// 16-bit type, causal or not; each 16-bit type has every other geometry, both ways.
bool is_quick(DType dtype, size_t geometry, bool causal) {
  if (dtype == DType::f32) return true;
  return (dtype == DType::bf16) == (geometry % 2 == 0) && causal == (geometry % 4 < 2);
}

void check_geometries(bool in_all) {
  Random random(1);
  for (DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (size_t i = 0; i < attention_geometries.size(); ++i)
      for (bool causal : {false, true}) {
        if (!in_all && !is_quick(dtype, i, causal)) continue;
        const AttentionGeometry& g = attention_geometries[i];
        auto draw = [&](int64_t heads, int64_t rows, int64_t columns) {
          return random_view({dtype, {g.batch, heads, rows, columns}}, -2, 2, random);
        };
        check_attention(
            attention(draw(g.heads, g.queries, g.depth), draw(g.key_heads, g.keys, g.depth),
                      draw(g.key_heads, g.keys, g.width), {.causal = causal}),
            "weft:attention");
      }
}

TEST_CASE("attention agrees with its decomposition: causal, grouped heads, any size, views") {
  check_geometries(is_other_device);
}

void check_gradients(bool in_all) {
  Random random(2);
  for (DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (size_t i = 0; i < attention_geometries.size(); ++i) {
      const AttentionGeometry& g = attention_geometries[i];
      const bool shared = g.heads != g.key_heads;
      if (g.queries != g.keys || g.depth != g.width) continue;
      if (shared && !backends().back()->on_host()) continue;  // decomposed there
      for (int64_t causal : {0, 1}) {
        if (!in_all && !is_quick(dtype, i, causal == 1)) continue;
        std::vector<Value> inputs;
        inputs.reserve(4);
        for (int64_t heads : {g.heads, g.key_heads, g.key_heads, g.heads})
          inputs.push_back(
              random_view({dtype, {g.batch, heads, g.queries, g.depth}}, -2, 2, random));
        const double scale = 1 / std::sqrt(static_cast<double>(g.depth));
        check_attention(
            make_node(op("attention_gradient"), inputs, {{"causal", causal}, {"scale", scale}}),
            gradient_kernel());
      }
    }
}

TEST_CASE("the gradient of attention agrees with its decomposition") {
  check_gradients(is_other_device);
}

// Checks masks and windows in both types, with shared and own key heads: each mask with each window
// in all four ways; or half of these pairs in one way, so that each mask has both types or both
// numbers of key heads, and each window, too.
void check_hidden_keys(bool in_all) {
  if (!backends().back()->on_host()) return;  // decomposed on other devices
  Random random(4);
  const Shape masks[] = {{2, 2, 75, 75}, {2, 1, 1, 75}, {1, 1, 75, 75}, {2, 1, 75, 1}, {}};
  const int64_t windows[] = {0, 1, 20, 40};
  for (size_t m = 0; m < std::size(masks); ++m)
    for (size_t w = 0; w < std::size(windows); ++w) {
      const Shape& shape = masks[m];
      const int64_t window = windows[w];
      const bool masked = !shape.empty();
      if (!masked && window == 0) continue;
      for (size_t way = 0; way < 4; ++way) {
        if (!in_all && ((masked && (m + w) % 2 != 0) || way != (m + w / 2) % 4)) continue;
        const DType dtype = way < 2 ? DType::f32 : DType::bf16;
        const int64_t key_heads = way % 2 == 0 ? 2 : 1;
        auto draw = [&](int64_t heads) {
          return random_view({dtype, {2, heads, 75, 16}}, -2, 2, random);
        };
        AttentionOptions options{.causal = window > 0, .window = window};
        if (masked) options.mask = random_view({DType::boolean, shape}, 0, 1, random);
        const Value y = attention(draw(2), draw(key_heads), draw(key_heads), options);
        check_attention(y, masked ? "weft:attention" : "weft:cached_attention");
        std::vector<Value> operands(y->inputs.begin(), y->inputs.begin() + 3);
        operands.push_back(draw(2));
        if (masked) operands.push_back(options.mask);
        check_attention(make_node(op("attention_gradient"), operands, y->attrs), gradient_kernel());
      }
    }
}

TEST_CASE("attention and its gradient skip keys that a mask or a window hides") {
  check_hidden_keys(false);
}

TEST_CASE("attention and its gradient are right on any number of threads") {
  Random random(3);
  for (const Shape& shape : {Shape{1, 1, 150, 16}, Shape{3, 3, 40, 24}, Shape{1, 1, 3, 8}}) {
    std::vector<Value> inputs;
    inputs.reserve(4);
    for (int i = 0; i < 4; ++i) inputs.push_back(random_values({DType::f32, shape}, -2, 2, random));
    for (int threads : thread_counts) {
      CAPTURE(threads);
      const Threads with(threads);
      check_attention(attention(inputs[0], inputs[1], inputs[2], {.causal = true}),
                      "weft:attention");
      check_attention(
          make_node(op("attention_gradient"), inputs, {{"causal", int64_t{1}}, {"scale", 0.25}}),
          gradient_kernel());
    }
  }
}

TEST_CASE("attention over scores of infinity and NaN agrees with its decomposition") {
  const double infinity = std::numeric_limits<double>::infinity();
  auto rows = [&](double first) {
    return constant(std::vector<double>{first, 1, 2, -1, 0.5, 1}, {1, 1, 3, 2}, DType::f32);
  };
  // Where the only visible key of a query has score -infinity, all weights are zero and the result
  // is undefined; kernel and interpreter must agree on it.
  for (double odd : {infinity, -infinity, std::nan("")})
    check_attention(attention(rows(odd), rows(1), rows(2), {.causal = true}), "weft:attention");
}

TEST_SUITE("slow attention") {
  TEST_CASE("every mask hides keys with every window, type and grouping of heads") {
    check_hidden_keys(true);
  }
  TEST_CASE(
      "attention and its gradient agree with their decompositions in every geometry and type") {
    check_geometries(true);
    check_gradients(true);
  }
}
}  // namespace
}  // namespace weft::testing
