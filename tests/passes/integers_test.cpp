#include <algorithm>
#include <cmath>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "tests/passes/graphs.h"
#include "tests/support/interpreter.h"
#include "tests/support/planned.h"
#include "weft/base/memory/storage.h"
#include "weft/ops/ops.h"
#include "weft/passes/passes.h"

using namespace weft;
using namespace weft::testing;

namespace {
// Bytes is a machine whose library multiplies integers of 8 bits.
struct Bytes : PlanningLibrary {
  Bytes() { overrides = {"conv_mixed", "matmul_mixed"}; }
};

Value random_bytes(const std::string& name, const Shape& shape, Random& random) {
  const Type type{DType::i8, shape};
  Value leaf = zero_variable(name, type);
  leaf->variable->storage =
      std::make_shared<Storage>(random_values(type, -127, 127, random)->storage->buffer());
  return leaf;
}

struct Zero {
  DType dtype;
  double zero;
};
Value fake(const Value& x, const Zero& of) {
  const Value zero =
      of.zero == 0 ? Value()
                   : constant(std::vector<double>{of.zero}, Dims::filled(x.rank(), 1), of.dtype);
  return fake_quantize(x, constant(std::vector<float>{0.02F}, Dims::filled(x.rank(), 1)), zero,
                       of.dtype);
}

// Returns what is wrong with results in which a sum that was rounded at another place may be at the
// other side of a tie: few of them, by about the scale of numbers.
std::string rounding_difference(const Value& got, const Value& want) {
  const std::vector<double> a = elements(got), b = elements(want);
  size_t off = 0;
  double most = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double by = std::fabs(a[i] - b[i]);
    off += by > 1e-4 ? 1 : 0;
    most = std::max(most, by);
  }
  if (1000 * off <= a.size() && most < 0.03) return "";
  return fmt::format("{} of {} differ, by up to {}", off, a.size(), most);
}

// Checks that the pass leaves no product of floats, and changes results by the rounding of sums.
void check_same(const Graph& graph, int convolutions, int products, bool rounds = false) {
  const Bytes library;
  const Graph integers = multiply_integers(graph, {.library = &library});
  verify(integers);
  CHECK(count_of(integers, "conv_mixed") == convolutions);
  CHECK(count_of(integers, "matmul_mixed") == products);
  CHECK(count_of(integers, "conv") == 0);
  CHECK(count_of(integers, "matmul") == 0);
  Random random(3);
  const std::vector<Value> inputs = random_inputs(graph, random);
  const Value want = interpret(graph, inputs).front();
  const auto check = [&](const Value& got) {
    CHECK((rounds ? rounding_difference(got, want) : difference(got, want, 1e-5)) == "");
  };
  check(interpret(integers, inputs).front());
  // The kernels of each machine give the same, whether they multiply integers or not.
  for (const KernelLibrary* backend : backends())
    check(run_planned(graph, inputs, *backend).front());
}
const Zero zeros_of_x[] = {{DType::u8, 0},   {DType::i8, 0},  {DType::i8, -128},
                           {DType::u8, 128}, {DType::u8, 37}, {DType::i8, -5}};
}  // namespace

TEST_SUITE("integers") {
  TEST_CASE("convolutions of quantized operands multiply the integers, whatever the zero") {
    Random random(1);
    const Value q = random_bytes("w", {6, 3, 3, 3}, random);
    const Value scale = random_variable("s", {DType::f32, {6, 1, 1, 1}}, random);
    for (const Zero& zero : zeros_of_x) {
      INFO(name(zero.dtype), " ", zero.zero);
      const Value x = input({DType::f32, {2, 3, 7, 9}}, 0);
      const ConvOptions options{.stride = {2, 1}, .padding = {1, 1}};
      const Value y = conv(fake(x, zero), dequantize(q, scale), {}, options);
      check_same({.inputs = {x}, .outputs = {relu(y)}}, 1, 0);
    }
  }

  TEST_CASE("a block of convolutions, whose sums are tiles, adds what it skips in integers, too") {
    Random random(7);
    const Value x = input({DType::f32, {1, 8, 40, 40}}, 0);
    const auto layer = [&](const Value& from, const std::string& name, int64_t outputs, int64_t k) {
      const Value q = random_bytes(name, {outputs, from.dim(1), k, k}, random);
      const Value scale = random_variable(name + ".s", {DType::f32, {outputs, 1, 1, 1}}, random);
      const Value bias = random_variable(name + ".b", {DType::f32, {outputs}}, random);
      return conv(from, dequantize(q, scale), bias, {.padding = {k / 2, k / 2}});
    };
    const Value first =
        fake(relu(layer(fake(x, {DType::i8, 0}), "a", 64, 3) * 0.01), {DType::u8, 0});
    const Value second = fake(layer(first, "b", 64, 1) * 0.01, {DType::i8, -5});
    check_same({.inputs = {x}, .outputs = {relu(second + first)}}, 2, 0, true);
  }

  TEST_CASE("an epilogue reads operands of any layout") {
    Random random(8);
    const Value q = random_bytes("w", {16, 8, 1, 1}, random);
    const Value scale = random_variable("s", {DType::f32, {16, 1, 1, 1}}, random);
    const Value x = input({DType::f32, {2, 8, 12, 12}}, 0);
    const Value y = conv(fake(x, {DType::u8, 0}), dequantize(q, scale));
    for (const Dims& order : {Dims{0, 1, 3, 2}, Dims{0, 2, 3, 1}, Dims{1, 0, 2, 3}}) {
      INFO(to_string(order));
      Shape shape = Dims::filled(4, 0);
      for (int i = 0; i < 4; ++i) shape[static_cast<int>(order[i])] = y.dim(i);
      const Value beside = input({DType::f32, shape}, 1);
      check_same({.inputs = {x, beside}, .outputs = {relu(y + permute(beside, order))}}, 1, 0);
      const Value by_row = input({DType::f32, {1, 1, 12, 1}}, 1);
      check_same({.inputs = {x, by_row}, .outputs = {relu(y * by_row)}}, 1, 0);
    }
  }

  TEST_CASE("so do products, by weights as they are, transposed, or of one scale for rows of x") {
    Random random(2);
    const Value q = random_bytes("w", {10, 20}, random);
    const Value scale = random_variable("s", {DType::f32, {10, 1}}, random);
    for (const Zero& zero : zeros_of_x) {
      INFO(name(zero.dtype), " ", zero.zero);
      const Value x = input({DType::f32, {2, 3, 20}}, 0);
      check_same({.inputs = {x}, .outputs = {linear(fake(x, zero), dequantize(q, scale))}}, 0, 1);
    }
    const Value x = input({DType::f32, {4, 10}}, 0);
    const Value by_row = max(abs(x), {-1}, true) / 127;
    const Value one = constant(std::vector<float>{0.01F}, {1, 1});
    check_same({.inputs = {x},
                .outputs = {matmul(fake_quantize(x, by_row, {}, DType::i8), dequantize(q, one))}},
               0, 1);
  }

  TEST_CASE("weights that are quantized in the step are multiplied as integers, too") {
    Random random(4);
    const Value w = random_variable("w", {DType::f32, {5, 12}}, random);
    const Value x = input({DType::f32, {3, 12}}, 0);
    const Value scale = max(abs(w), {-1}, true) / 127;
    check_same(
        {.inputs = {x},
         .outputs = {linear(fake(x, {DType::i8, 0}), fake_quantize(w, scale, {}, DType::i8))}},
        0, 1);
  }

  TEST_CASE("integers that ONNX's operators multiply less their zeros are found") {
    Random random(5);
    const Value q = random_bytes("w", {8, 6}, random);
    const Value x = input({DType::f32, {3, 8}}, 0);
    const Value zero = cast(round(max(x)), DType::u8);  // computed in the step
    const Value p = quantize_affine(x, constant(std::vector<float>{0.02F}, {1, 1}),
                                    reshape(zero, {1, 1}), DType::u8);
    const Value y = matmul(cast(p, DType::i32) - cast(zero, DType::i32), cast(q, DType::i32));
    check_same({.inputs = {x}, .outputs = {y}}, 0, 1);
  }

  TEST_CASE("numbers half-way between two levels go to the even one before a product, too") {
    constexpr int64_t rows = 8, k = 64;
    std::vector<double> identity(k * k, 0);
    for (size_t i = 0; i < k; ++i) identity[i * (k + 1)] = 1;
    const Value x = input({DType::f32, {rows, k}}, 0), scale = input({DType::f32, {1, 1}}, 1);
    const Value w = dequantize(constant(identity, {k, k}, DType::i8), full({1, 1}, 1));
    const Graph graph{.inputs = {x, scale},
                      .outputs = {matmul(fake_quantize(x, scale, {}, DType::i8), w)}};
    const Bytes library;
    CHECK(count_of(multiply_integers(graph, {.library = &library}), "matmul_mixed") == 1);
    for (const float step : {0.1F, 0.02F, 0.3F, 0.0472F}) {
      std::vector<float> numbers;
      std::vector<double> want;
      for (int i = 0; i < rows * k; ++i) {
        numbers.push_back((0.5F * static_cast<float>(i) - 127) * step);
        const float level = std::nearbyint(numbers.back() / step);
        want.push_back(std::clamp(level, -128.0F, 127.0F) * step);
      }
      const std::vector<Value> inputs{constant(numbers, {rows, k}),
                                      constant(std::vector<float>{step}, {1, 1})};
      for (const KernelLibrary* backend : backends())
        CHECK(elements(run_planned(graph, inputs, *backend).front()) == want);
    }
  }

  TEST_CASE("products of numbers in blocks stay, unless one scale is that of all of a row") {
    const Bytes library;
    const Value x = input({DType::f32, {4, 8}}, 0);
    const Value w = dequantize(full({8, 6}, 2, DType::i8), full({1, 6}, 0.5));
    const auto products = [&](const Shape& blocks) {
      const Graph graph{.inputs = {x},
                        .outputs = {matmul(fake_quantize(x, full(blocks, 0.1), {}, DType::i8), w)}};
      return count_of(multiply_integers(graph, {.library = &library}), "matmul_mixed");
    };
    CHECK(products({4, 2}) == 0);
    CHECK(products({2, 1}) == 0);
    CHECK(products({4, 1}) == 1);
  }

  TEST_CASE("products stay where scales vary along what is summed, or the step trains the weight") {
    Random random(6);
    const Bytes library;
    const auto kept = [&](const Graph& graph) {
      return multiply_integers(graph, {.library = &library}).outputs[0].node() ==
             graph.outputs[0].node();
    };
    const Value x = input({DType::f32, {3, 8}}, 0);
    const Value q = random_bytes("w", {8, 6}, random);
    const Value along = random_variable("s", {DType::f32, {8, 1}}, random);
    CHECK(
        kept({.inputs = {x}, .outputs = {matmul(fake(x, {DType::u8, 0}), dequantize(q, along))}}));
    const Value zero = constant(std::vector<double>(6, 3), {1, 6}, DType::i8);
    const Value scale = random_variable("t", {DType::f32, {1, 6}}, random);
    CHECK(kept(
        {.inputs = {x}, .outputs = {matmul(fake(x, {DType::u8, 0}), dequantize(q, scale, zero))}}));
    const Value w = random_variable("v", {DType::f32, {8, 6}}, random);
    const Value y = matmul(fake(x, {DType::u8, 0}), fake_quantize(w, scale, {}, DType::i8));
    CHECK(kept({.inputs = {x}, .outputs = {y}, .assignments = {{w, w * 2}}}));
    CHECK_FALSE(kept({.inputs = {x}, .outputs = {y}}));
    const PlanningLibrary without;
    CHECK(multiply_integers({.inputs = {x}, .outputs = {y}}, {.library = &without})
              .outputs[0]
              ->is("matmul"));
  }
}
