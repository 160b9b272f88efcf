#include "weft/nn/init.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <optional>

#include <doctest/doctest.h>

#include "tests/support/near.h"
#include "tests/support/values.h"
#include "weft/base/host/parallel.h"
#include "weft/nn/layers.h"

using namespace weft;
using weft::testing::near;

namespace {
std::vector<float> drawn(const nn::Init& init, int64_t count, int64_t seed = 1,
                         int64_t stream = 0) {
  Variable variable("x", {DType::f32, {count}});
  nn::initialize(variable, init, seed, stream);
  auto values = variable.floats();
  return {values.begin(), values.end()};
}
double moment(const std::vector<float>& values, int power) {
  double total = 0;
  for (float value : values) total += std::pow(static_cast<double>(value), power);
  return total / static_cast<double>(values.size());
}
double correlation(const std::vector<float>& a, const std::vector<float>& b, size_t lag) {
  double total = 0;
  for (size_t i = 0; i + lag < a.size(); ++i) total += static_cast<double>(a[i]) * b[i + lag];
  return total / static_cast<double>(a.size() - lag);
}
// Returns the largest distance from the normal distribution (Kolmogorov-Smirnov statistic).
double distance_from_normal(std::vector<float> values) {
  std::sort(values.begin(), values.end());
  double n = static_cast<double>(values.size()), worst = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    double expected = 0.5 * std::erfc(-static_cast<double>(values[i]) / std::numbers::sqrt2);
    worst = std::max({worst, std::abs(expected - static_cast<double>(i) / n),
                      std::abs(expected - static_cast<double>(i + 1) / n)});
  }
  return worst;
}
constexpr int64_t many = 1'000'003;  // not a multiple of the group
}  // namespace

TEST_CASE("normal initial values follow the normal distribution") {
  std::vector<float> z = drawn(nn::Init::normal(0, 1), many);
  CHECK(std::abs(moment(z, 1)) < 5e-3);
  CHECK(std::abs(moment(z, 2) - 1) < 6e-3);
  CHECK(std::abs(moment(z, 3)) < 1.5e-2);
  CHECK(std::abs(moment(z, 4) - 3) < 5e-2);
  CHECK(distance_from_normal(z) < 1.95 / std::sqrt(static_cast<double>(many)));  // p = 0.001
  float largest = *std::max_element(z.begin(), z.end());
  CHECK(largest > 4.2f);
  CHECK(largest < 6.0f);
}

TEST_CASE("initial values are uncorrelated between neighbours, blocks, streams and seeds") {
  std::vector<float> z = drawn(nn::Init::normal(0, 1), many);
  double limit = 4 / std::sqrt(static_cast<double>(many));
  for (size_t lag : {1, 4, 16, 32, 64, 1024}) CHECK(std::abs(correlation(z, z, lag)) < limit);
  CHECK(std::abs(correlation(z, drawn(nn::Init::normal(0, 1), many, 1, 1), 0)) < limit);
  CHECK(std::abs(correlation(z, drawn(nn::Init::normal(0, 1), many, 2, 0), 0)) < limit);
}

TEST_CASE("uniform initial values fill their range evenly") {
  std::vector<float> u = drawn(nn::Init::uniform(-0.25, 0.75), many);
  CHECK(*std::min_element(u.begin(), u.end()) >= -0.25f);
  CHECK(*std::max_element(u.begin(), u.end()) <= 0.75f);
  CHECK(std::abs(moment(u, 1) - 0.25) < 2e-3);
  std::vector<int> bins(20);
  for (float value : u) ++bins[static_cast<size_t>(std::min(19.0f, (value + 0.25f) * 20))];
  double chi_squared = 0, expected = static_cast<double>(many) / 20;
  for (int count : bins) chi_squared += (count - expected) * (count - expected) / expected;
  CHECK(chi_squared < 43.8);  // 19 degrees of freedom, p = 0.001
}

TEST_CASE("initial values do not depend on the number of threads") {
  int before = thread_count();
  set_thread_count(1);
  std::vector<float> one = drawn(nn::Init::normal(0, 0.02), many);
  set_thread_count(3);
  std::vector<float> three = drawn(nn::Init::normal(0, 0.02), many);
  set_thread_count(before);
  CHECK(testing::same_bits(one, three));
}

TEST_CASE("initial values of other types are the f32 values rounded") {
  std::vector<float> f32 = drawn(nn::Init::normal(0, 1), 1000);
  Variable variable("x", {DType::f64, {1000}});
  nn::initialize(variable, nn::Init::normal(0, 1), 1, 0);
  for (int64_t i = 0; i < 1000; ++i)
    REQUIRE(load(variable.bytes().data(), DType::f64, i) == f32[static_cast<size_t>(i)]);
}

TEST_CASE("weights and biases of linear and convolution are uniform to 1 / sqrt(fan in)") {
  nn::Module root;
  nn::Linear linear(root, "linear", 100, 500);
  nn::Conv2d conv(root, "conv", 8, 400, {3, 3}, {.groups = 2});
  nn::ConvTranspose2d transposed(root, "transposed", 8, 800, {3, 3}, {.groups = 2});
  auto check = [](const Variable& variable, double bound) {
    auto span = variable.floats();
    std::vector<float> values(span.begin(), span.end());
    for (float value : values) REQUIRE(std::abs(value) <= bound * 1.000001);
    CHECK(std::sqrt(moment(values, 2)) == near(bound / std::sqrt(3.0), 0.05));
  };
  check(linear.weight, 0.1);
  check(linear.bias, 0.1);
  check(conv.weight, 1 / std::sqrt(4 * 9.0));
  check(conv.bias, 1 / std::sqrt(4 * 9.0));
  check(transposed.weight, 1 / std::sqrt(400 * 9.0));
  check(transposed.bias, 1 / std::sqrt(400 * 9.0));
}

TEST_CASE("embeddings are standard normal and norms start as the identity") {
  nn::Module root;
  nn::Embedding embedding(root, "embedding", 1000, 64);
  auto span = embedding.weight.floats();
  std::vector<float> values(span.begin(), span.end());
  CHECK(std::sqrt(moment(values, 2)) == near(1, 0.02));
  nn::LayerNorm norm(root, "norm", 8);
  CHECK(norm.weight.floats()[7] == 1.0f);
  CHECK(norm.bias.floats()[7] == 0.0f);
}

TEST_CASE("initial values depend on the seed and the path alone") {
  auto first_weights = [](int64_t seed, bool with_more = false) {
    manual_seed(seed);
    nn::Module root;
    std::optional<nn::Linear> more;
    if (with_more) more.emplace(root, "more", 4, 4);
    nn::Linear a(root, "a", 4, 4), b(root, "b", 4, 4);
    return std::pair(a.weight.floats()[0], b.weight.floats()[0]);
  };
  auto once = first_weights(3), again = first_weights(3), other = first_weights(4);
  auto beside = first_weights(3, true);
  manual_seed(0);
  CHECK(once == again);
  CHECK(once == beside);
  CHECK(once.first != once.second);
  CHECK(once.first != other.first);
}
