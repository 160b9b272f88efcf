// Tests the ranges that calibration finds against those of make_expected.py, which NumPy computes
// from all magnitudes, and against closed forms.
#include "weft/quantization/calibration.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>

#include <doctest/doctest.h>

#include "weft/base/error.h"
#include "weft/quantization/int8.h"
#include "weft/tensor/compile.h"

using namespace weft;
using namespace weft::quantization;

namespace {
// As samples() of make_expected.py.
double sample(const std::string& kind, int64_t k) {
  const double u = (static_cast<double>(k * 7919 % 20011) + 0.5) / 20011;
  const double sign = k % 2 == 0 ? 1 : -1, tail = -std::log1p(-u);
  if (kind == "exponential") return tail * sign;
  if (kind == "uniform") return u * sign;
  if (kind == "outliers") return (k % 1000 == 999 ? 40 : tail) * sign;
  if (kind == "rectified") return k % 3 == 0 ? 0 : tail;
  return (k % 4 != 0 ? 0 : std::floor(256 * u)) * 0.0127 - 0.4242;  // pixels
}
std::vector<float> samples(const std::string& kind) {
  std::vector<float> all;
  all.reserve(20000);
  for (int64_t k = 0; k < 20000; ++k) all.push_back(static_cast<float>(sample(kind, k)));
  return all;
}

struct Expected {
  const char* kind;
  double largest, percentile, of_128, of_256;
};
// The output of make_expected.py.
constexpr Expected expected[] = {
    {"exponential", 10.597184, 5.293930, 9.500210, 10.597184},
    {"uniform", 0.999975, 0.994978, 0.999975, 0.999975},
    {"outliers", 40.000000, 5.503496, 10.605469, 40.000000},
    {"rectified", 10.597184, 4.883518, 8.987944, 8.987944},
    {"pixels", 2.814300, 2.763500, 2.814300, 2.814300},
};

Variable weight(const std::string& name, const Shape& shape) {
  Variable made(name, {DType::f32, shape});
  made.assign(ones(shape));
  return made;
}
}  // namespace

TEST_CASE("percentiles and ranges of least divergence are those of NumPy") {
  for (const Expected& row : expected) {
    CAPTURE(row.kind);
    const std::vector<float> values = samples(row.kind);
    Histogram histogram(row.largest);
    // In parts, as batches come.
    histogram.add(std::span(values).first(7001));
    histogram.add(std::span(values).subspan(7001));
    const double bin = row.largest / Histogram::bins;
    CHECK(std::abs(percentile_range(histogram, 99.5) - row.percentile) <= bin);
    CHECK(entropy_range(histogram, 128) == doctest::Approx(row.of_128).epsilon(1e-5));
    CHECK(entropy_range(histogram, 256) == doctest::Approx(row.of_256).epsilon(1e-5));
  }
}

TEST_CASE("calibration sees the inputs of layers in all batches, and no more") {
  const Variable first = weight("first.weight", {4, 4}), second = weight("second.weight", {2, 4});
  const Net net = [&](std::span<const Tensor> in) {
    return std::vector<Tensor>{linear(relu(linear(in[0], first)), second)};
  };
  const Tensor x = input({DType::f32, {1, 4}}, 0);
  const Layers layers = layers_of({.inputs = {x}, .outputs = net(std::array{x})});
  REQUIRE(layers.layers.size() == 2);
  // Batch b is the exponential samples from 4 b on, so that the hidden units are their sums.
  const std::vector<float> values = samples("exponential");
  const Samples batches = [&](const auto& visit) {
    for (size_t i = 0; i < values.size(); i += 4)
      visit(std::array{tensor(std::vector<float>(&values[i], &values[i] + 4), {1, 4})});
  };
  std::vector<double> inputs, hidden;
  for (size_t i = 0; i < values.size(); i += 4) {
    double sum = 0;
    for (size_t j = i; j < i + 4; ++j) {
      inputs.push_back(std::abs(values[j]));
      sum += values[j];
    }
    for (int unit = 0; unit < 4; ++unit) hidden.push_back(std::max(sum, 0.0));
  }
  for (std::vector<double>* each : {&inputs, &hidden}) std::ranges::sort(*each);
  const auto share = [](const std::vector<double>& sorted, double percent) {
    return sorted[static_cast<size_t>(percent / 100 * static_cast<double>(sorted.size() - 1))];
  };
  const auto ranges = [&](Method method) {
    return calibrate(net, layers, batches, {.method = method, .percentile = 99, .device = "cpu"});
  };
  const std::vector<double> largest = ranges(Method::minmax), most = ranges(Method::percentile);
  CHECK(largest[0] == doctest::Approx(inputs.back()).epsilon(1e-6));
  CHECK(largest[1] == doctest::Approx(hidden.back()).epsilon(1e-5));
  CHECK(std::abs(most[0] - share(inputs, 99)) < 2 * inputs.back() / Histogram::bins);
  CHECK(std::abs(most[1] - share(hidden, 99)) < 2 * hidden.back() / Histogram::bins);
}

TEST_CASE("an activation of zeros has the range 0, and one that is not finite none") {
  const Variable one = weight("one.weight", {2, 2}), two = weight("two.weight", {2, 2});
  const Net net = [&](std::span<const Tensor> in) {
    return std::vector<Tensor>{linear(in[0], one), linear(in[1], two)};
  };
  const std::array types{input({DType::f32, {1, 2}}, 0), input({DType::f32, {1, 2}}, 1)};
  const Layers layers = layers_of({.inputs = {types[0], types[1]}, .outputs = net(types)});
  constexpr float infinity = std::numeric_limits<float>::infinity();
  for (const float wrong : {infinity, std::nanf("")})
    for (const Method method : {Method::minmax, Method::percentile, Method::entropy}) {
      const std::vector<double> ranges = calibrate(
          net, layers,
          [&](const auto& visit) {
            for (const float value : {1.0F, wrong, 2.0F})
              visit(std::array{zeros({1, 2}), tensor(std::vector<float>{value, 1}, {1, 2})});
          },
          {.method = method, .device = "cpu"});
      CHECK(ranges[0] == 0);
      CHECK(!std::isfinite(ranges[1]));
      Scheme scheme{.ranges = ranges};
      CHECK(exclude_without_range(layers, scheme) == std::vector<std::string>{"one", "two"});
    }
}

TEST_CASE("batches of several shapes are calibrated on, unless they give the net other layers") {
  const Variable a = weight("a", {2, 2}), b = weight("b", {2, 2});
  const Net net = [&](std::span<const Tensor> in) {
    const Tensor y = linear(in[0], a);
    return std::vector<Tensor>{in[0].dim(0) > 3 ? linear(y, b) : y};
  };
  const Tensor x = input({DType::f32, {1, 2}}, 0);
  const Layers layers = layers_of({.inputs = {x}, .outputs = net(std::array{x})});
  const auto ranges = [&](int64_t rows, Method method) {
    return calibrate(net, layers,
                     [&](const auto& visit) {
                       visit(std::array{(2 * ones({1, 2})).eval()});
                       visit(std::array{(-3 * ones({rows, 2})).eval()});
                     },
                     {.method = method, .device = "cpu"});
  };
  for (const Method method : {Method::minmax, Method::entropy})
    CHECK(ranges(3, method)[0] == doctest::Approx(3));
  CHECK_THROWS_WITH_AS(ranges(4, Method::minmax),
                       doctest::Contains("other layers for some of the samples: 2 instead of 1"),
                       Error);
}
