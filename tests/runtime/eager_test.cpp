// Tests evaluation outside of compiled steps: on which device, and on plans that are kept.
#include "weft/tensor/eager.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "weft/base/error.h"
#include "weft/base/memory/storage.h"
#include "weft/tensor/compile.h"
#include "weft/tensor/tensor.h"

using namespace weft;

namespace {
using Doubles = std::vector<double>;

int64_t plans_made(const auto& work) {
  const int64_t before = detail::eager_plans().made;
  work();
  return detail::eager_plans().made - before;
}

// Returns random numbers, integers, reductions, products and gathers, as doubles in a row; or the
// first `count` of them.
Doubles computed(size_t count = 7) {
  manual_seed(3);
  const Tensor x = rand({33, 20}), w = randn({20, 7}), rows = tensor({4, 0, 32}, {3});
  const std::vector<Tensor> whole = {x,
                                     cast(floor(10.0 * x), DType::i32),
                                     sum(x * x, 0),
                                     softmax(matmul(x, w)),
                                     gather(x, rows, 0),
                                     argmax(matmul(x, w), -1),
                                     variance(x, 1)};
  const std::span<const Tensor> all = std::span(whole).first(count);
  eval(all);
  Doubles numbers;
  for (const Tensor& values : all)
    for (double number : values.to_doubles()) numbers.push_back(number);
  return numbers;
}

double farthest(const Doubles& a, const Doubles& b) {
  REQUIRE(a.size() == b.size());
  double most = 0;
  for (size_t i = 0; i < a.size(); ++i) most = std::max(most, std::abs(a[i] - b[i]));
  return most;
}
}  // namespace

TEST_CASE("eager evaluation on the scope's device agrees with the CPU") {
  const Doubles here = computed();
  for (const char* device : {"reference", "cpu"}) {
    CAPTURE(device);
    const DeviceScope on(device);
    CHECK(farthest(computed(), here) < 1e-5);
  }
  {
    constexpr size_t few = 3;  // kernels of OpenCL take long to compile
    const Doubles expected = computed(few);
    const DeviceScope on("opencl");
    CHECK(farthest(computed(few), expected) < 1e-5);
  }
  const DeviceScope reference("reference");
  const Tensor y = exp(tensor({1.0}, {1})) * 3.0;
  const int64_t made = plans_made([&] {
    const DeviceScope inner("opencl");  // which has a plan of its own
    CHECK(y.item() == doctest::Approx(3 * std::exp(1.0)));
  });
  CHECK(made == 1);
}

TEST_CASE("an absent or planning-only device is refused where the scope begins") {
  CHECK_THROWS_WITH_AS(DeviceScope("nowhere"), doctest::Contains("unknown device 'nowhere'"),
                       Error);
  CHECK_THROWS_WITH_AS(DeviceScope("null"), doctest::Contains("[device] null only plans"), Error);
  CHECK(tensor({1.0}, {1}).item() == 1);
}

TEST_CASE("an eager loop plans once on any device") {
  for (const char* device : {"cpu", "reference", "opencl"}) {
    CAPTURE(device);
    const DeviceScope on(device);
    Tensor x = tensor({64.0, 0.0}, {2});
    const int64_t made = plans_made([&] {
      for (int i = 0; i < 100; ++i) {
        x = x * 0.5 + 1.0;
        x.eval();
      }
    });
    CHECK(made == 1);
    CHECK(x.to_doubles() == Doubles{2, 2});
  }
}

TEST_CASE("an eager training loop with random inputs reuses its plans") {
  const Variable w("w", {DType::f32, {3}});
  const Tensor truth = tensor({1.0, -2.0, 0.5}, {3});
  auto iteration = [&] {
    const Tensor x = randn({16, 3});
    const Tensor miss = matmul(x, reshape(w.value() - truth, {3, 1}));
    const Tensor loss = mean(miss * miss);
    w.assign(w.value() - 0.1 * grad(loss, std::vector<Variable>{w})[0]);
    return loss.item();
  };
  const double first = iteration();
  iteration();
  double last = 0;
  const int64_t made = plans_made([&] {
    for (int i = 0; i < 100; ++i) last = iteration();
  });
  CHECK(made == 0);
  CHECK(last < 1e-4 * first);
}

TEST_CASE("draws of a cached plan differ and repeat with the seed") {
  manual_seed(7);
  const Doubles first = rand({4}).to_doubles(), second = rand({4}).to_doubles();
  CHECK(first != second);
  manual_seed(7);
  CHECK(rand({4}).to_doubles() == first);
  CHECK(rand({4}).to_doubles() == second);
}

TEST_CASE("the plan cache is keyed by operations, types and numbers and not by elements") {
  auto made = [](const Tensor& value) { return plans_made([&] { value.eval(); }); };
  const Tensor a = tensor({1.0, 2.0, 3.0}, {3}), b = tensor({5.0, 6.0, 7.0}, {3});
  CHECK(made(a * 2.5 + b) == 1);
  CHECK(made(b * 2.5 + a) == 0);
  CHECK(made(a * 2.75 + b) == 1);  // another number
  CHECK(made(a * 2.5 + a) == 1);   // one tensor twice
  CHECK(made(a * 2.5 - b) == 1);
  CHECK(made(cast(a, DType::f64) * 2.5 + cast(b, DType::f64)) == 1);
  const Tensor twice = a * 2.5 + b, other = b * 2.5 + a;
  const Tensor both[] = {twice, other};
  eval(both);  // in one graph
  CHECK(twice.to_doubles() == Doubles{7.5, 11, 14.5});
  CHECK(other.to_doubles() == Doubles{13.5, 17, 20.5});
}

TEST_CASE("the plan cache keeps the most recently used plans up to its limit") {
  const Tensor x = tensor({1.0}, {1});
  auto evaluate = [&](int i) { CHECK((x * (i + 0.125)).item() == i + 0.125); };
  for (int i = 0; i < 100; ++i) evaluate(i);
  CHECK(detail::eager_plans().cached == 64);
  CHECK(plans_made([&] { evaluate(99); }) == 0);
  CHECK(plans_made([&] { evaluate(36); }) == 0);
  CHECK(plans_made([&] { evaluate(0); }) == 1);
  CHECK(plans_made([&] { evaluate(36); }) == 0);  // it ran after 37
  CHECK(plans_made([&] { evaluate(37); }) == 1);
}

TEST_CASE("a cached plan holds no tensors and its results survive the next run") {
  const auto owner = std::make_shared<std::vector<float>>(5, 2.0F);
  std::weak_ptr<std::vector<float>> watched = owner;
  std::vector<Tensor> results;
  {
    const Tensor x = tensor_over(owner, owner->data(), {DType::f32, {5}});
    results.push_back(sqrt(x) + 11.0);
    eval(results);
  }
  results.push_back(sqrt(ones({5}) * 4.0) + 11.0);
  CHECK(results[1].to_doubles() == Doubles(5, 13));
  CHECK(results[0].to_doubles() == Doubles(5, std::sqrt(2.0F) + 11.0F));
  std::shared_ptr<VariableState> state;
  {
    const Variable w("w", {DType::f32, {5}});
    state = w.state();
    CHECK(sum(w.value() + 1.0).item() == 5);
  }
  CHECK(state.use_count() == 1);
  const long holders = watched.use_count();
  results.clear();
  CHECK(holders == 2);  // `owner`, and the expression behind results[0]
  CHECK(watched.use_count() == 1);
}

TEST_CASE("eager evaluation reads operands that are too large to copy") {
  const int64_t count = (int64_t{64} << 20) / 4 + 1024;
  const Tensor large = ones({count}).eval();
  const int64_t made = plans_made([&] {
    for (int i = 0; i < 2; ++i)
      CHECK((sum(large * 2.0) / 2.0).item() == static_cast<double>(count));
  });
  CHECK(made == 2);
}

TEST_CASE("variables that a step keeps on a device stay there when evaluation reads them") {
  const Variable w("w", {DType::f32, {4}});
  auto step = compile([&] { w.assign(w.value() + 1.0); }, {.device = "opencl"});
  step();
  const bool was_on_device = w.state()->storage->is_on_device();
  CHECK((w.value() * 3.0).to_doubles() == Doubles(4, 3));
  CHECK(w.state()->storage->is_on_device() == was_on_device);
  step();
  const DeviceScope on("opencl");
  CHECK((w.value() * 3.0).to_doubles() == Doubles(4, 6));
}
