// Tests numbers in blocks as values of a graph: dequantize_blocks gives the bits of the gguf
// package on every backend, matmul_blocks the product with them.
#include "weft/ops/blocks.h"

#include <cmath>
#include <vector>

#include <doctest/doctest.h>

#include "tests/ops/refusals.h"
#include "tests/support/gguf_reference.h"
#include "tests/support/interpreter.h"
#include "tests/support/planned.h"
#include "tests/support/values.h"
#include "weft/base/numbers/block_format.h"
#include "weft/device/registry.h"
#include "weft/io/gguf.h"
#include "weft/ir/axis_map.h"
#include "weft/ops/autodiff.h"

using namespace weft;
using namespace weft::testing;

namespace {
// Returns the value on each backend, the interpreter first.
std::vector<Value> on_backends(const Value& y) {
  std::vector<Value> results{interpret(y)};
  for (const KernelLibrary* library : backends()) {
    Graph graph;
    graph.outputs = {y};
    results.push_back(run_planned(graph, {}, *library).front());
  }
  return results;
}

Value random_blocks(const BlockFormat& format, Shape shape, Random& random) {
  shape.push_back(format.bytes);
  return random_values({DType::u8, shape}, 0, 63, random);
}
}  // namespace

TEST_CASE("dequantize_blocks gives the bits of the gguf package on every backend") {
  const io::Gguf file = io::Gguf::open(reference_gguf);
  for (const BlockFormat& format : block_formats()) {
    INFO(format.name);
    const std::string name = fmt::format("blocks.{}", format.name);
    const std::vector<float> numbers = gguf_numbers(name);
    const Tensor blocks = file.tensor(name);
    const Value want = constant(numbers, file.find(name)->shape());
    for (const Value& y : on_backends(dequantize_blocks(blocks, format.name)))
      CHECK(bit_difference(y, want) == "");
  }
}

TEST_CASE("dequantize_blocks decodes every float16 scale") {
  const BlockFormat& format = block_format("Q8_0");
  constexpr int64_t halves = 65536;
  auto bytes = Buffer::allocate(static_cast<size_t>(halves * format.bytes));
  std::vector<float> want(halves * static_cast<size_t>(format.numbers));
  for (int64_t half = 0; half < halves; ++half) {
    std::byte* block = bytes->data + half * format.bytes;
    block[0] = static_cast<std::byte>(half & 255);
    block[1] = static_cast<std::byte>(half >> 8);
    for (int i = 0; i < format.numbers; ++i) block[2 + i] = static_cast<std::byte>(8 * i);
    for (int i = 0; i < format.numbers; ++i)
      want[static_cast<size_t>(half * format.numbers + i)] =
          to_float(Half{static_cast<uint16_t>(half)}) *
          static_cast<float>(i < 16 ? 8 * i : 8 * i - 256);
  }
  const Value blocks = from_buffer(bytes, {DType::u8, {halves, format.bytes}});
  const Value numbers = constant(want, {halves * format.numbers});
  for (const Value& y : on_backends(dequantize_blocks(blocks, format.name)))
    CHECK(bit_difference(y, numbers) == "");
}

TEST_CASE("dequantize_blocks rounds once to the type that is asked for") {
  Random random(4);
  for (const BlockFormat& format : block_formats()) {
    const Value blocks = random_blocks(format, {3, 2}, random);
    const Value exact = interpret(dequantize_blocks(blocks, format.name, DType::f64));
    for (DType dtype : {DType::f32, DType::f16, DType::bf16}) {
      INFO(format.name << " " << name(dtype));
      const Value y = dequantize_blocks(blocks, format.name, dtype);
      CHECK(y.type() == Type{dtype, {3, int64_t{2} * format.numbers}});
      CHECK(bit_difference(interpret(y), interpret(cast(exact, dtype))) == "");
    }
  }
}

TEST_CASE("matmul_blocks is the product with the decoded matrix in every format") {
  Random random(5);
  for (const BlockFormat& format : block_formats()) {
    INFO(format.name);
    const int64_t k = int64_t{2} * format.numbers;
    const Value w = random_blocks(format, {7, 2}, random);
    const Value x = random_values({DType::f32, {2, 3, k}}, -1, 1, random);
    const std::vector<double> numbers =
        elements(interpret(dequantize_blocks(w, format.name, DType::f64)));
    const std::vector<double> rows = elements(x);
    std::vector<double> want, scale;
    for (size_t row = 0; row < 6; ++row)
      for (size_t n = 0; n < 7; ++n) {
        double sum = 0, size = 0;
        for (size_t i = 0; i < static_cast<size_t>(k); ++i) {
          const double product =
              rows[row * static_cast<size_t>(k) + i] * numbers[n * static_cast<size_t>(k) + i];
          sum += product, size += std::abs(product);
        }
        want.push_back(sum), scale.push_back(size);
      }
    for (const Value& y : on_backends(matmul_blocks(x, w, format.name))) {
      REQUIRE(y.type() == Type{DType::f32, {2, 3, 7}});
      const std::vector<double> got = elements(y);
      for (size_t i = 0; i < want.size(); ++i) CHECK(std::abs(got[i] - want[i]) <= 1e-6 * scale[i]);
    }
    const Value vector =
        interpret(matmul_blocks(reshape(slice(reshape(x, {6, k}), 0, 0, 1), {k}), w, format.name));
    CHECK(vector.shape() == Shape{7});
  }
}

TEST_CASE("int8 activations are multiples of a scale for every 32 neighbours of a row") {
  Random random(8);
  for (const BlockFormat& format : block_formats()) {
    INFO(format.name);
    const int64_t k = int64_t{2} * format.numbers;
    const Value w = random_blocks(format, {7, 2}, random);
    const Value x = random_values({DType::f32, {3, k}}, -1, 1, random);
    std::vector<float> rows;
    for (double number : elements(x)) rows.push_back(static_cast<float>(number));
    for (size_t from = 0; from < rows.size(); from += 32) {
      const std::span<float> neighbours(rows.data() + from, 32);
      float most = 0;
      for (float number : neighbours) most = std::max(most, std::abs(number));
      for (float& number : neighbours)
        number = std::nearbyint(number * (127 / most)) * (most / 127);
    }
    const Value want = interpret(matmul_blocks(constant(rows, {3, k}), w, format.name));
    for (const Value& y : on_backends(matmul_blocks(x, w, format.name, {.activations = DType::i8})))
      CHECK(difference(y, want, 1e-5) == "");
  }
}

TEST_CASE("rows of each group are multiplied by its own blocks, with the bits of the group alone") {
  Random random(10);
  for (const BlockFormat& format : block_formats())
    for (DType activations : {DType::f32, DType::i8}) {
      INFO(format.name << " " << name(activations));
      const int64_t k = int64_t{2} * format.numbers;
      const Value w = random_blocks(format, {4, 7, 2}, random);
      const Value x = random_values({DType::f32, {25, k}}, -1, 1, random);
      const Value counts = constant(std::vector<double>{2, 0, 19, 1}, {4}, DType::i64);
      const auto alone = [&](int64_t group, int64_t from, int64_t to) {
        return matmul_blocks(slice(x, 0, from, to), w[group], format.name,
                             {.activations = activations});
      };
      const Value each =
          concat({alone(0, 0, 2), alone(2, 2, 21), alone(3, 21, 22), zeros({3, 7})}, 0);
      const std::vector<Value> grouped = on_backends(
                                   matmul_blocks(x, w, format.name,
                                                 {.activations = activations, .counts = counts})),
                               want = on_backends(each);
      // A GPU's library sums the products of a group in another order than those of all groups.
      for (size_t i = 0; i < grouped.size(); ++i)
        CHECK(difference(grouped[i], want[i], 1e-5) == "");
      const auto on_cpu = [](const Value& y) {
        Graph graph;
        graph.outputs = {y};
        return run_planned(graph, {}, library("cpu")).front();
      };
      CHECK(bit_difference(on_cpu(matmul_blocks(x, w, format.name,
                                                {.activations = activations, .counts = counts})),
                           on_cpu(each)) == "");
    }
}

TEST_CASE("the gradient of int8 activations is that of activations as they are") {
  Random random(9);
  const Value w = random_blocks(block_format("Q4_0"), {5, 2}, random);
  const Value x = random_values({DType::f32, {4, 64}}, -1, 1, random);
  const auto slope = [&](DType activations) {
    const Value y = matmul_blocks(x, w, "Q4_0", {.activations = activations});
    return interpret(gradients(sum(y), std::vector{x})[0]);
  };
  CHECK(bit_difference(slope(DType::i8), slope(DType::f32)) == "");
}

TEST_CASE("the gradient of matmul_blocks is that of a product with the decoded matrix") {
  Random random(6);
  for (std::string_view format : {"Q4_0", "Q6_K"}) {
    INFO(format);
    const Value w = random_blocks(block_format(format), {5, 1}, random);
    const Value x = random_values({DType::f64, {4, block_format(format).numbers}}, -1, 1, random);
    const auto slope = [&](const Value& y) { return gradients(sum(y * y), std::vector{x})[0]; };
    const Value plain = matmul(x, transpose(dequantize_blocks(w, format, DType::f64)));
    CHECK(difference(interpret(slope(matmul_blocks(x, w, format))), interpret(slope(plain)),
                     1e-14) == "");
    const Value experts = random_blocks(block_format(format), {2, 5, 1}, random);
    const Value counts = constant(std::vector<double>{1, 2}, {2}, DType::i32);
    const Value decoded = transpose(dequantize_blocks(experts, format, DType::f64));
    CHECK(difference(interpret(slope(matmul_blocks(x, experts, format, {.counts = counts}))),
                     interpret(slope(grouped_matmul(x, decoded, counts))), 1e-14) == "");
  }
}

TEST_CASE("axis maps of operations on blocks name blocks and rows") {
  const Value w = zeros({6, 3, 18}, DType::u8), x = zeros({2, 5, 96});
  const auto map_of = [](const Value& y) { return to_string(axis_map(*y.node())); };
  CHECK(map_of(dequantize_blocks(w, "Q4_0")) == "([a, b, c]) -> [a, bd], c whole, d whole");
  CHECK(map_of(matmul_blocks(x, w, "Q4_0")) ==
        "([a, b, de], [c, d, f]) -> [a, b, c], d reduced, e whole, f whole");
  const Value experts = zeros({4, 6, 3, 18}, DType::u8), counts = zeros({4}, DType::i32);
  CHECK(map_of(matmul_blocks(zeros({5, 96}), experts, "Q4_0", {.counts = counts})) ==
        "([a, c], [f, b, d, e], [f]) -> [a, b], a positional, c whole, d whole, e whole, f whole");
}

TEST_CASE("operations on blocks refuse other shapes and types by name") {
  const Value w = zeros({6, 3, 18}, DType::u8), x = zeros({5, 96});
  check_calls({
      {accepted, [&] { matmul_blocks(x, w, "Q4_0"); }},
      {"unknown block format 'q4'. Known: Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K, Q6_K.",
       [&] { dequantize_blocks(w, "q4"); }},
      {"[dequantize_blocks] blocks of Q8_0 must be u8[.., blocks, 34]. Got u8[6, 3, 18].",
       [&] { dequantize_blocks(w, "Q8_0"); }},
      {"[dequantize_blocks] blocks of Q4_0 must be u8[.., blocks, 18]. Got u8[18].",
       [&] { dequantize_blocks(zeros({18}, DType::u8), "Q4_0"); }},
      {"[dequantize_blocks] blocks of Q4_0 must be u8[.., blocks, 18]. Got i8[2, 18].",
       [&] { dequantize_blocks(zeros({2, 18}, DType::i8), "Q4_0"); }},
      {"[dequantize_blocks] numbers must be f64, f32, bf16 or f16. Got i32.",
       [&] { dequantize_blocks(w, "Q4_0", DType::i32); }},
      {"[matmul_blocks] x must be f64, f32, bf16 or f16. Got i32.",
       [&] { matmul_blocks(zeros({5, 96}, DType::i32), w, "Q4_0"); }},
      {"[matmul_blocks] x must be [.., M, 96], for w [6, 3, 18] of Q4_0. Got [5, 95].",
       [&] { matmul_blocks(zeros({5, 95}), w, "Q4_0"); }},
      {"[matmul_blocks] x must be [.., M, 96], for w [6, 3, 18] of Q4_0. Got [5, 48].",
       [&] { matmul_blocks(zeros({5, 48}), w, "Q4_0"); }},
      {"[matmul_blocks] counts must be integers [E], for w[E, N, B, bytes]. Got i32[4] and [6, 3, "
       "18].",
       [&] { matmul_blocks(x, w, "Q4_0", {.counts = zeros({4}, DType::i32)}); }},
      {"[matmul_blocks] x must be [M, 96], for groups with w [1, 6, 3, 18] of Q4_0. Got [5, 95].",
       [&] {
         matmul_blocks(zeros({5, 95}), unsqueeze(w, 0), "Q4_0", {.counts = ones({1}, DType::i32)});
       }},
      {"[matmul_blocks] activations must be f32 or i8. Got i4x2.",
       [&] { matmul_blocks(x, w, "Q4_0", {.activations = DType::i4x2}); }},
  });
}
