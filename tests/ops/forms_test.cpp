// Compares convolutions and attention, which vendor libraries have kernels for, in all variants and
// types on the backend under test with the interpreter.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "tests/support/interpreter.h"
#include "tests/support/planned.h"
#include "tests/support/values.h"
#include "weft/backends/cuda/cudnn_graph.h"
#include "weft/ir/op_def.h"
#include "weft/ops/autodiff.h"
#include "weft/ops/ops.h"
#include "weft/passes/passes.h"

namespace weft::testing {
namespace {
const KernelLibrary& library_under_test() { return *backends().back(); }

Graph graph_of(const Value& value) {
  Graph graph;
  graph.outputs = {value};
  return graph;
}

std::vector<Interpreted> interpreted(const Value& value) {
  return interpret_with_errors(graph_of(value));
}

// Checks `value`; if cuDNN is installed, `is_vendors` says whether the plan uses its kernel.
void check_form(const Value& value, const std::vector<Interpreted>& expected,
                bool is_vendors = true) {
  const Graph graph = graph_of(value);
  INFO(to_text(graph));
  if (library_under_test().name() == "cuda" && cuda::cudnn::is_installed()) {
    const std::vector<Launch> launches =
        make_plan(graph, {.library = &library_under_test()}).launches;
    const bool found = std::ranges::any_of(
        launches, [](const Launch& launch) { return launch.kernel.starts_with("cudnn:"); });
    CHECK(found == is_vendors);
  }
  const std::vector<Value> once = run_planned(graph, {}, library_under_test()),
                           again = run_planned(graph, {}, library_under_test());
  CHECK(disagreement(once, expected, library_under_test()) == "");
  CHECK(std::memcmp(once[0]->data(), again[0]->data(), value.type().bytes()) == 0);
}

struct Image {
  Shape x, weight;
  ConvOptions options;
};
const std::vector<Image> images = {
    {{2, 16, 9, 7}, {24, 16, 3, 3}, {.padding = {1, 1}}},
    {{2, 17, 5, 5}, {3, 17, 1, 1}, {}},
    {{3, 4, 8, 9}, {6, 4, 3, 3}, {.stride = {2, 2}, .padding = {1, 1}}},
    {{1, 2, 10, 11}, {3, 2, 3, 2}, {.stride = {3, 2}}},
    {{2, 3, 12, 11}, {4, 3, 3, 2}, {.padding = {2, 1}, .dilation = {2, 3}}},
    {{2, 6, 7, 7}, {9, 2, 3, 3}, {.padding = {1, 1}, .groups = 3}},
    {{2, 17, 7, 7}, {17, 1, 3, 3}, {.stride = {2, 1}, .padding = {1, 0}, .groups = 17}},
    {{1, 1, 1, 1}, {1, 1, 1, 1}, {}},
    {{1, 2, 3, 3}, {2, 2, 2, 2}, {.padding = {3, 2}}},
};

// Returns a convolution of data and its two gradients.
std::vector<Value> convolutions_of(const Image& image, DType dtype) {
  Random random(1);
  const Value x = random_view({dtype, image.x}, -1, 1, random),
              weight = random_view({dtype, image.weight}, -1, 1, random);
  const Value y = conv(x, weight, {}, image.options);
  const Value wanted[] = {x, weight};
  std::vector<Value> all = gradients(y, wanted, random_view(y.type(), -1, 1, random));
  all.push_back(y);
  return all;
}
Value with(const Value& node, std::string_view attribute) {
  return make_node(*node->op, node->inputs, node->attrs.with({attribute, int64_t{1}}));
}
Value in_tf32(const Value& node) {
  return make_node(*node->op, node->inputs, node->attrs, {.tf32 = true});
}
// TF32 operands keep 10 bits after the first, which widens the allowed error.
std::vector<Interpreted> interpreted_in_tf32(const Value& node) {
  std::vector<Interpreted> expected = interpreted(node);
  const std::vector<Value> sizes{abs(node->inputs[0]), abs(node->inputs[1])};
  const std::vector<double> sums = elements(interpret(make_node(*node->op, sizes, node->attrs)));
  for (size_t i = 0; i < sums.size(); ++i) expected[0].allowed[i] += 2 * 0x1p-11 * sums[i];
  return expected;
}

struct Heads {
  int64_t batch, heads, key_heads, queries, keys, depth, width;
};
const std::vector<Heads> forms = {
    {2, 3, 3, 64, 64, 32, 32},  {1, 4, 2, 17, 33, 16, 40}, {2, 2, 1, 40, 7, 8, 24},
    {1, 1, 1, 70, 70, 128, 64}, {1, 6, 2, 1, 19, 64, 64},  {3, 2, 2, 5, 5, 8, 8},
};
Value heads_of(DType dtype, const Shape& shape, Random& random, bool by_token) {
  if (!by_token) return random_view({dtype, shape}, -2, 2, random);
  const Shape tokens{shape[0], shape[2], shape[1], shape[3]};
  return permute(random_values({dtype, tokens}, -2, 2, random), {0, 2, 1, 3});
}

// Returns attention's gradients, with the sums of dy y over the rounded y (Dao et al. 2022).
Value gradient_by_result(const Value& node) {
  const Value &q = node->inputs[0], &k = node->inputs[1], &v = node->inputs[2],
              &dy = node->inputs[3];
  auto wide = [](const Value& x) { return cast(x, DType::f32); };
  auto narrow = [&](const Value& x) { return cast(x, q.dtype()); };
  const double scale = node->attrs.number("scale");
  Value scores = scale * matmul(wide(q), transpose(wide(k)));
  const Value row = iota(scores.shape(), 2), column = iota(scores.shape(), 3);
  if (node->attrs.integer("causal") != 0) scores = select(row >= column, scores, -1e30);
  const Value p = softmax(scores), y = wide(matmul(narrow(p), v));
  const Value dots = sum(wide(dy) * y, {.axes = {3}, .keepdim = true});
  const Value dp = matmul(wide(dy), transpose(wide(v)));
  const Value dscores = narrow(scale * p * (dp - dots));
  return concat(
      {matmul(dscores, k), matmul(transpose(dscores), q), matmul(transpose(narrow(p)), dy)}, 1);
}
}  // namespace

TEST_SUITE("slow device forms") {
  TEST_CASE("convolutions and their gradients in every form and type agree with the reference") {
    for (DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16})
      for (const Image& image : images)
        for (const Value& node : convolutions_of(image, dtype)) {
          check_form(node, interpreted(node));
          if (dtype == DType::f32) check_form(in_tf32(node), interpreted_in_tf32(node));
          if (size_of(dtype) == 2)  // sums may be rounded on the way
            check_form(with(node, "wide"), interpreted(cast(node, DType::f32)));
        }
  }
  TEST_CASE("attention in every form agrees with its expression") {
    Random random(2);
    for (DType dtype : {DType::f16, DType::bf16})
      for (const Heads& h : forms)
        for (bool causal : {false, true})
          for (bool by_token : {false, true}) {
            auto draw = [&](int64_t heads, int64_t rows, int64_t columns) {
              return heads_of(dtype, {h.batch, heads, rows, columns}, random, by_token);
            };
            const Value y =
                attention(draw(h.heads, h.queries, h.depth), draw(h.key_heads, h.keys, h.depth),
                          draw(h.key_heads, h.keys, h.width), {.causal = causal});
            check_form(y, interpreted(y));
          }
  }
  TEST_CASE("the gradient of attention in every form agrees with its expression") {
    Random random(3);
    for (DType dtype : {DType::f16, DType::bf16})
      for (const Heads& h : forms)
        for (int64_t causal : {0, 1})
          for (bool by_token : {false, true}) {
            const Shape shape{h.batch, h.heads, h.queries, h.depth};
            std::vector<Value> inputs;
            inputs.reserve(4);
            for (int i = 0; i < 4; ++i) inputs.push_back(heads_of(dtype, shape, random, by_token));
            const double scale = 1 / std::sqrt(static_cast<double>(h.depth));
            const Value all =
                make_node(op("attention_gradient"), inputs, {{"causal", causal}, {"scale", scale}});
            check_form(all, interpreted(gradient_by_result(all)), h.queries > 1);
          }
  }
}
}  // namespace weft::testing
