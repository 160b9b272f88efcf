// Tests transposed convolutions and pools over three axes: gradients by finite differences, and
// what they must equal. Their values beside PyTorch's are in pytorch_test.cpp.
#include <functional>
#include <limits>
#include <vector>

#include <doctest/doctest.h>

#include "tests/support/near.h"
#include "tests/support/values.h"
#include "weft/ops/autodiff.h"
#include "weft/ops/ops.h"
#include "weft/tensor/tensor.h"

using namespace weft;
using namespace weft::testing;

namespace {
using TensorFunction = std::function<Value(const std::vector<Value>&)>;

Value drawn(const Shape& shape, Random& random) {
  return random_values({DType::f64, shape}, -1, 1, random);
}

// Returns the most that a gradient of sum(f(x) * weights) differs from central differences, over
// all elements of all inputs.
double farthest_from_differences(const TensorFunction& f, const std::vector<Shape>& shapes) {
  Random random(5);
  std::vector<Value> inputs;
  for (const Shape& shape : shapes) inputs.push_back(drawn(shape, random));
  const Value weights = drawn(f(inputs).shape(), random);
  const auto loss = [&](const std::vector<Value>& in) { return sum(f(in) * weights); };
  const std::vector<Value> got = gradients(loss(inputs), inputs);
  constexpr double step = 1e-6;
  double most = 0;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const std::vector<double> exact = got[i].to_doubles(), at = inputs[i].to_doubles();
    for (size_t k = 0; k < at.size(); ++k) {
      double sides[2];
      for (const int side : {0, 1}) {
        std::vector<double> moved = at;
        moved[k] += side == 0 ? step : -step;
        std::vector<Value> in = inputs;
        in[i] = tensor(moved, inputs[i].shape(), DType::f64);
        sides[side] = loss(in).item();
      }
      most = larger(most, std::abs((sides[0] - sides[1]) / (2 * step) - exact[k]));
    }
  }
  return most;
}

double dot(const Value& a, const Value& b) { return sum(a * b).item(); }
}  // namespace

TEST_CASE("a transposed convolution of volumes is the transpose of the convolution") {
  Random random(1);
  struct Case {
    Shape x, weight;
    ConvOptions options;
  };
  const Case cases[] = {
      {{2, 4, 6, 5, 4}, {6, 2, 3, 2, 3}, {.stride = {2, 1, 3}, .padding = {1, 0, 2}, .groups = 2}},
      {{1, 3, 8, 4, 4}, {2, 3, 3, 1, 2}, {.stride = {3, 2, 1}, .dilation = {2, 1, 3}}},
      {{1, 1, 1, 1, 1}, {1, 1, 1, 1, 1}, {}},
  };
  for (const auto& [x_shape, weight_shape, options] : cases) {
    const Value x = drawn(x_shape, random), weight = drawn(weight_shape, random);
    const Value y = conv(x, weight, {}, options), upstream = drawn(y.shape(), random);
    ConvTransposeOptions back{.stride = options.stride,
                              .padding = options.padding,
                              .dilation = options.dilation,
                              .output_padding = {0, 0, 0},
                              .groups = options.groups};
    const Shape least = conv_transpose(upstream, weight, {}, back).shape();
    for (int i = 0; i < 3; ++i) back.output_padding[i] = x_shape[2 + i] - least[2 + i];
    const Value z = conv_transpose(upstream, weight, {}, back);
    REQUIRE(z.shape() == x_shape);
    CHECK(dot(z, x) == doctest::Approx(dot(upstream, y)).epsilon(1e-12));
  }
}

TEST_CASE("gradients of transposed convolutions and pools of volumes match finite differences") {
  const Shape volume{1, 2, 3, 4, 3};
  const PoolOptions windows{.kernel = {2, 3, 2}, .stride = {1, 2, 2}, .padding = {1, 1, 0}};
  PoolOptions inside = windows;
  inside.count_include_pad = false;
  CHECK(farthest_from_differences(
            [](const std::vector<Value>& in) {
              return conv_transpose(in[0], in[1], in[2],
                                    {.stride = {2, 1, 2},
                                     .padding = {1, 0, 0},
                                     .output_padding = {1, 0, 1},
                                     .groups = 2});
            },
            {{1, 4, 2, 3, 2}, {4, 1, 3, 2, 2}, {2}}) < 1e-7);
  for (const PoolOptions& options : {windows, inside}) {
    CHECK(farthest_from_differences(
              [&](const std::vector<Value>& in) { return avg_pool3d(in[0], options); }, {volume}) <
          1e-7);
    CHECK(farthest_from_differences(
              [&](const std::vector<Value>& in) { return max_pool3d(in[0], options); }, {volume}) <
          1e-7);
  }
}

TEST_CASE("max_pool3d routes gradients to the first of equal elements and never to padding") {
  const Value x = full({1, 1, 2, 2, 2}, -3.0).eval();
  const Value y = max_pool3d(x, {.kernel = {3}, .stride = {1}, .padding = {1}});
  CHECK(y.shape() == Shape{1, 1, 2, 2, 2});
  CHECK(y.to_doubles() == std::vector<double>(8, -3));
  const std::vector<Value> in{x};
  CHECK(gradients(sum(y), in)[0].to_doubles() == std::vector<double>{8, 0, 0, 0, 0, 0, 0, 0});
}

TEST_CASE("an average pool of 16-bit volumes is rounded once") {
  Random random(2);
  const Value x = cast(drawn({2, 3, 4, 6, 5}, random), DType::bf16);
  const PoolOptions box{.kernel = {3, 2, 2}, .stride = {1, 2, 1}};
  CHECK(avg_pool3d(x, box).to_doubles() ==
        cast(avg_pool3d(cast(x, DType::f32), box), DType::bf16).to_doubles());
}
