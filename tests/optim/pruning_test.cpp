// Tests the choice of pruned weights against sorts and brute force, and the schedule against its
// formula.
#include "weft/optim/pruning.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include <doctest/doctest.h>

#include "tests/support/values.h"
#include "weft/tensor/compile.h"

using namespace weft;
using optim::Prunable;
using optim::Pruner;
using optim::PruningOptions;
using optim::PruningPattern;

namespace {
using Numbers = std::vector<double>;

Variable weight_of(const std::string& name, const Shape& shape, DType dtype, uint64_t seed) {
  Variable weight(name, {dtype, shape});
  testing::Random random(seed);
  weight.assign(random_values({dtype, shape}, -1, 1, random));
  return weight;
}

// Prunes once `step` updates are done, as a run does; returns how many weights are pruned then.
double prune(const Pruner& pruner, int64_t step, const char* device = "cpu") {
  auto search = compile([&](Tensor counts) { pruner.search(counts); }, {.device = device});
  auto last = compile([&](Tensor counts) { return pruner.prune(counts); }, {.device = device});
  const std::vector<int64_t> counts = pruner.counts_at(step);
  const Tensor units = tensor(counts, {static_cast<int64_t>(counts.size())});
  if (pruner.searches())
    for (int round = 0; round < Pruner::rounds; ++round) search(units);
  return last(units).item();
}

Numbers magnitudes(const Variable& weight) {
  Numbers all = weight.to_doubles();
  for (double& x : all) x = std::abs(x);
  return all;
}

// Returns the weights with zeros for the `count` least magnitudes of all of them together.
std::vector<Numbers> without_least(const std::vector<Variable>& weights, int64_t count) {
  Numbers all;
  for (const Variable& weight : weights)
    std::ranges::copy(magnitudes(weight), std::back_inserter(all));
  std::ranges::sort(all);
  const double threshold = count > 0 ? all[static_cast<size_t>(count - 1)] : -1;
  std::vector<Numbers> pruned;
  for (const Variable& weight : weights) {
    Numbers& values = pruned.emplace_back(weight.to_doubles());
    for (double& x : values)
      if (std::abs(x) <= threshold) x = 0;
  }
  return pruned;
}
}  // namespace

TEST_CASE("the schedule of pruning is Zhu and Gupta's cubic curve") {
  const PruningOptions options{
      .sparsity = 0.8, .initial_sparsity = 0.2, .begin = 100, .end = 500, .frequency = 150};
  for (const int64_t step : {100, 101, 250, 400, 499, 500}) {
    const double t = static_cast<double>(step - 100) / 400;
    CHECK(optim::scheduled_sparsity(options, step) ==
          doctest::Approx(0.8 + (0.2 - 0.8) * std::pow(1 - t, 3)).epsilon(1e-14));
  }
  CHECK(optim::scheduled_sparsity({.sparsity = 0.7, .begin = 9, .end = 9}, 9) == 0.7);
  const Pruner pruner({{weight_of("w", {10, 10}, DType::f32, 1)}}, options);
  std::vector<int64_t> due;
  for (int64_t step = 0; step < 600; ++step)
    if (pruner.is_due(step)) due.push_back(step);
  CHECK(due == std::vector<int64_t>{100, 250, 400, 500});
  CHECK(pruner.counts_at(100) == std::vector<int64_t>{20});
  CHECK(pruner.counts_at(500) == std::vector<int64_t>{80});
}

TEST_CASE("the least weights of each layer, or of all layers, are pruned") {
  for (const char* device : {"cpu", "reference"})
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::f64})
      for (const bool global : {false, true}) {
        CAPTURE(device);
        CAPTURE(name(dtype));
        CAPTURE(global);
        const std::vector<Variable> weights = {weight_of("a", {37, 11}, dtype, 1),
                                               weight_of("b", {8, 3, 3, 3}, dtype, 2)};
        // Magnitudes of the second layer are larger, so that a global threshold prunes fewer there.
        weights[1].assign(cast(weights[1].value() * 4.0, dtype));
        const Pruner pruner({{weights[0]}, {weights[1]}}, {.global = global, .sparsity = 0.37});
        std::vector<Numbers> expected;
        if (global) {
          expected = without_least(weights, std::llround(0.37 * (37 * 11 + 8 * 27)));
        } else {
          expected = {without_least({weights[0]}, std::llround(0.37 * 37 * 11))[0],
                      without_least({weights[1]}, std::llround(0.37 * 8 * 27))[0]};
        }
        const double pruned = prune(pruner, 0, device);
        for (size_t i = 0; i < weights.size(); ++i) CHECK(weights[i].to_doubles() == expected[i]);
        double zeros = 0;
        for (const Numbers& each : expected)
          zeros += static_cast<double>(std::ranges::count(each, 0.0));
        CHECK(pruned == zeros);
      }
}

TEST_CASE("thresholds are exact from the least to the greatest magnitudes of float32") {
  const Numbers values = {0,   1e-45,       -3e-45, 1e-40, 1.17549435e-38, 1e-20,
                          0.5, -0.50000006, 1.0e10, -1e30, 3e38,           2.0000002};
  for (size_t count = 1; count < values.size(); ++count) {
    Variable weight("w", {DType::f32, {static_cast<int64_t>(values.size())}});
    weight.assign(tensor(values, weight.shape(), DType::f32));
    const std::vector<Numbers> expected = without_least({weight}, static_cast<int64_t>(count));
    const Pruner pruner(
        {{weight}}, {.sparsity = static_cast<double>(count) / static_cast<double>(values.size())});
    prune(pruner, 0, "reference");
    CHECK(weight.to_doubles() == expected[0]);
  }
}

TEST_CASE("pruning nothing leaves zeros that are weights unmarked") {
  Variable weight("w", {DType::f32, {4}});
  const Pruner pruner({{weight}}, {.sparsity = 0});
  CHECK(prune(pruner, 0) == 0);
}

TEST_CASE("of each four neighbours along the input features 2:4 keeps the two largest") {
  struct Case {
    Shape shape;
    int axis;
  };
  for (const Case& each : {Case{{6, 16}, 1}, Case{{16, 6}, 0}, Case{{5, 8, 3, 3}, 1}}) {
    Variable weight = weight_of("w", each.shape, DType::f32, 3);
    // Coarse values, so that some are equal: of those the earlier is pruned.
    weight.assign(round(weight.value() * 4.0) / 4.0);
    Numbers expected = weight.to_doubles();
    int64_t inner = 1;
    for (int axis = each.axis + 1; axis < each.shape.size(); ++axis) inner *= each.shape[axis];
    for (size_t first = 0; first < expected.size(); ++first) {
      const auto at = static_cast<int64_t>(first);
      if (at / inner % each.shape[each.axis] % 4 != 0) continue;  // no start of four
      std::array<size_t, 4> four{};
      for (size_t i = 0; i < 4; ++i) four[i] = first + i * static_cast<size_t>(inner);
      // All pairs: the kept one has the largest sum of magnitudes.
      double best = -1;
      std::pair<size_t, size_t> kept;
      for (size_t i = 0; i < 4; ++i)
        for (size_t j = i + 1; j < 4; ++j)
          if (const double sum = std::abs(expected[four[i]]) + std::abs(expected[four[j]]);
              sum >= best) {
            best = sum;
            kept = {i, j};
          }
      for (size_t i = 0; i < 4; ++i)
        if (i != kept.first && i != kept.second) expected[four[i]] = 0;
    }
    const Pruner pruner({{weight, each.axis}}, {.pattern = PruningPattern::two_of_four});
    CHECK(prune(pruner, 0) == static_cast<double>(expected.size()) / 2);
    CHECK(weight.to_doubles() == expected);
  }
}

TEST_CASE("the channels of least norm are pruned with their bias, and one stays") {
  Variable weight("w", {DType::f32, {4, 2}}), bias("b", {DType::f32, {4}});
  const Numbers rows = {3, 0, 1, 1, 0, 2, -4, 0};  // norms 3, 1.41, 2, 4
  const auto reset = [&] {
    weight.assign(tensor(rows, {4, 2}, DType::f32));
    bias.assign(ones({4}));
  };
  reset();
  const Prunable both{.weight = weight, .follows = {{.variable = bias}}};
  const Pruner half({both}, {.pattern = PruningPattern::channels, .sparsity = 0.5});
  CHECK(prune(half, 0) == 4);
  CHECK(weight.to_doubles() == Numbers{3, 0, 0, 0, 0, 0, -4, 0});
  CHECK(bias.to_doubles() == Numbers{1, 0, 0, 1});
  reset();
  const Pruner all({both}, {.pattern = PruningPattern::channels, .sparsity = 0.99});
  CHECK(prune(all, 0) == 6);
  CHECK(bias.to_doubles() == Numbers{0, 0, 0, 1});
}

TEST_CASE("channels are along any axis, and what follows them is a part of a variable") {
  Variable weight("w", {DType::f32, {2, 4}}), joined("j", {DType::f32, {2, 7}});
  weight.assign(tensor({3, 1, 0, -4, 0, 1, 2, 0}, {2, 4}, DType::f32));  // norms 3, 1.41, 2, 4
  joined.assign(ones({2, 7}));
  Variable each("e", {DType::f32, {8}});  // two neighbours for each channel
  each.assign(ones({8}));
  const Pruner half(
      {{.weight = weight,
        .channel_axis = 1,
        .follows = {{.variable = joined, .axis = 1, .offset = 2}, {.variable = each, .each = 2}}}},
      {.pattern = PruningPattern::channels, .sparsity = 0.5});
  CHECK(half.state()[0].shape() == Shape{4});
  CHECK(prune(half, 0) == 4);
  CHECK(weight.to_doubles() == Numbers{3, 0, 0, -4, 0, 0, 0, 0});
  CHECK(joined.to_doubles() == Numbers{1, 1, 1, 0, 0, 1, 1, 1, 1, 1, 0, 0, 1, 1});
  CHECK(each.to_doubles() == Numbers{1, 1, 0, 0, 0, 0, 1, 1});
  auto masked = compile([&] { return half.masked(joined, full({2, 7}, 2.0)); });
  CHECK(masked().to_doubles() == Numbers{2, 2, 2, 0, 0, 2, 2, 2, 2, 2, 0, 0, 2, 2});
}

TEST_CASE("what is pruned stays so when the share rises, and gradients there are zeros") {
  Variable weight = weight_of("w", {10, 10}, DType::f32, 5);
  const Pruner pruner({{weight}},
                      {.sparsity = 0.6, .initial_sparsity = 0.3, .begin = 0, .end = 10});
  prune(pruner, 0);
  const Numbers first = pruner.state()[0].to_doubles();
  CHECK(std::ranges::count(first, 1.0) == 30);
  auto update = compile([&] {
    const Tensor gradient = pruner.masked(weight, ones({10, 10}));
    weight.assign(weight.value() + 1.0);
    pruner.hold();
    return gradient;
  });
  const Numbers gradient = update().to_doubles();
  for (size_t i = 0; i < first.size(); ++i) {
    CHECK(gradient[i] == 1 - first[i]);
    CHECK((weight.to_doubles()[i] == 0) == (first[i] == 1));
  }
  prune(pruner, 10);
  const Numbers second = pruner.state()[0].to_doubles();
  CHECK(std::ranges::count(second, 1.0) == 60);
  for (size_t i = 0; i < first.size(); ++i) CHECK(second[i] >= first[i]);
}
