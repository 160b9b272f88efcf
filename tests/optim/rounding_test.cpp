// Tests the effect of rounding on small updates of bfloat16 parameters.
#include <cmath>

#include <doctest/doctest.h>

#include "tests/support/near.h"
#include "tests/support/values.h"
#include "weft/optim/optim.h"
#include "weft/runtime/executable.h"
#include "weft/tensor/compile.h"

using namespace weft;
using weft::testing::near;

namespace {
constexpr int64_t many = 4096;

Variable bf16_ones(const std::string& name, const Shape& shape = {many}) {
  Variable parameter(name, {DType::bf16, shape});
  parameter.assign(ones(shape, DType::bf16));
  return parameter;
}
double mean_of(const Variable& parameter) {
  double total = 0;
  for (double x : parameter.value().to_doubles()) total += x;
  return total / static_cast<double>(parameter.type().elements());
}
std::string suffix(optim::Rounding rounding) {
  return rounding == optim::Rounding::nearest      ? "nearest"
         : rounding == optim::Rounding::stochastic ? "stochastic"
                                                   : "kahan";
}
}  // namespace

TEST_CASE("stochastic rounding returns one of two neighbours with the value as their mean") {
  const double values[] = {1.003, -1.003, 0.1, -3.14159, 1e-30, 7.7e-39, 65504.3, 3.3e38, -1e-41};
  for (const char* device : {"cpu", "reference"}) {
    auto round = compile(
        [&](Tensor x) {
          RandomKey key = next_random_key();
          return round_stochastic(broadcast_to(x, {many * 4}), uniform({many * 4}, key));
        },
        {.device = device});
    for (double value : values) {
      const double x = static_cast<float>(value);
      double total = 0, low = INFINITY, high = -INFINITY;
      for (double y : round(tensor(std::vector<double>{x}, {1}, DType::f32)).to_doubles()) {
        low = std::min(low, y), high = std::max(high, y);
        total += y;
      }
      CAPTURE(device);
      CAPTURE(x);
      const double spacing = high - low, up = (x - low) / spacing;
      CHECK((low < x && x < high));
      // Neighbours differ by one in the bits of bfloat16.
      CHECK(static_cast<int>(to_bfloat16(high).bits) - static_cast<int>(to_bfloat16(low).bits) ==
            (x > 0 ? 1 : -1));
      const double deviation = spacing * std::sqrt(up * (1 - up) / (many * 4));
      CHECK(std::fabs(total / (many * 4) - x) < 4 * deviation);
    }
  }
}

TEST_CASE("stochastic rounding keeps bfloat16 values, infinities and NaN") {
  Tensor noise = full({6}, 0.9999999);
  std::vector<double> exact{1.5, -2, 0, INFINITY, -INFINITY, NAN};
  Tensor x = tensor(exact, {6}, DType::f32);
  std::vector<double> rounded = round_stochastic(x, noise).to_doubles();
  for (size_t i = 0; i < 5; ++i) CHECK(rounded[i] == exact[i]);
  CHECK(std::isnan(rounded[5]));
  CHECK_THROWS_WITH_AS(round_stochastic(ones({2}, DType::f64), zeros({2}, DType::f64)),
                       doctest::Contains("[round_stochastic] takes f32 values"), Error);
}

// Below 1, bfloat16 numbers are 2^-8 apart: rounding to nearest loses an update of 2^-12.
TEST_CASE(
    "updates below bfloat16's spacing survive stochastic and Kahan rounding but not nearest") {
  constexpr double rate = 0x1p-12;
  constexpr int steps = 128;
  for (const char* device : {"cpu", "reference"})
    for (auto rounding :
         {optim::Rounding::nearest, optim::Rounding::stochastic, optim::Rounding::kahan}) {
      const std::string name = suffix(rounding);
      CAPTURE(name);
      Variable parameter = bf16_ones("w");
      optim::SGD sgd({parameter}, {.lr = rate, .rounding = rounding});
      auto step = compile([&](Tensor g) { sgd.step(std::vector{g}); }, {.device = device});
      for (int i = 0; i < steps; ++i) step(ones({many}, DType::bf16));
      const double expected = 1 - steps * rate;  // in exact arithmetic: 0.96875
      if (rounding == optim::Rounding::nearest) CHECK(mean_of(parameter) == 1);
      if (rounding == optim::Rounding::kahan) CHECK(mean_of(parameter) == expected);
      // This is the deviation of a sum of `steps` roundings of spacing at most 2^-8, each with a
      // variance of 15 / 256.
      const double deviation = 0x1p-8 * std::sqrt(15.0 / 256 * steps / many);
      if (rounding == optim::Rounding::stochastic)
        CHECK(std::fabs(mean_of(parameter) - expected) < 4 * deviation);
    }
}

TEST_CASE("equal parameters draw independent stochastic rounding") {
  Variable a = bf16_ones("a"), b = bf16_ones("b");
  optim::SGD sgd({a, b}, {.lr = 1e-3, .rounding = optim::Rounding::stochastic});
  CompiledStep step(
      [&](std::span<const Tensor> gradients) {
        sgd.step(gradients);
        return std::vector<Tensor>{};
      },
      {.device = "cpu"});
  Tensor gradient = ones({many}, DType::bf16);
  step.run(std::array{gradient, gradient});
  auto x = a.value().to_doubles(), y = b.value().to_doubles();
  size_t different = 0, lower = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    different += x[i] != y[i];
    lower += x[i] < 1;
  }
  // Each decreases with probability p = 2^8 / 1000; independent ones differ in 2 p (1 - p).
  CHECK(static_cast<double>(lower) / many == near(0.256, 0.1));
  CHECK(static_cast<double>(different) / many == near(0.381, 0.1));
}

TEST_CASE("updates with rounding are one kernel per parameter with all state in place") {
  for (auto [rounding, results] : {std::pair{optim::Rounding::stochastic, size_t{3}},
                                   std::pair{optim::Rounding::kahan, size_t{4}}}) {
    std::vector<Variable> parameters;
    parameters.reserve(5);
    for (int i = 0; i < 5; ++i) parameters.push_back(bf16_ones("w" + std::to_string(i), {64, 32}));
    optim::AdamW adamw(parameters, {.rounding = rounding});
    CompiledStep step(
        [&](std::span<const Tensor> gradients) {
          adamw.step(gradients);
          return std::vector<Tensor>{};
        },
        {.device = "cpu"});
    const Plan& plan = step.prepare(std::vector(5, Type{DType::bf16, {64, 32}})).plan();
    size_t large = 0;
    for (const Launch& kernel : plan.launches)
      for (const Access& result : kernel.results)
        if (result.value.elements() > 1) {
          ++large;
          CHECK(plan.slots[static_cast<size_t>(result.at.slot)].space == Space::state);
          CHECK(kernel.results.size() == results);
        }
    CHECK(large == 5 * results);
    CHECK(plan.launches.size() <= 5 + 8);
  }
}

TEST_CASE("only bfloat16 parameters have a Kahan compensation in the optimizer state") {
  Variable narrow = bf16_ones("narrow"), wide("wide", {DType::f32, {2}});
  optim::SGD sgd({narrow, wide}, {.rounding = optim::Rounding::kahan});
  REQUIRE(sgd.state().size() == 2);
  CHECK(sgd.state()[1].name() == "compensation.narrow");
  CHECK(sgd.state()[1].type() == narrow.type());
  CHECK(sgd.state()[1].category() == Category::optimizer_state);
  CHECK(optim::SGD({narrow}, {.rounding = optim::Rounding::stochastic}).state().size() == 1);
}
