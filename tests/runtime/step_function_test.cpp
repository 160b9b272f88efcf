// Tests which functions compile() accepts, what they return, and reductions as in PyTorch.
#include <array>
#include <atomic>
#include <concepts>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "weft/tensor/compile.h"

using namespace weft;

namespace {
using Doubles = std::vector<double>;

std::pair<Tensor, Tensor> sum_and_product(const Tensor& a, Tensor b) { return {a + b, a * b}; }

static_assert(StepResult<void> && StepResult<Tensor> && StepResult<std::vector<Tensor>>);
static_assert(StepResult<std::pair<Tensor, Tensor>> && StepResult<std::array<Tensor, 3>>);
static_assert(!StepResult<double> && !StepResult<std::pair<Tensor, int>>);
static_assert(ReadsAsTensor<Variable> && !ReadsAsTensor<int>);
using OfNumbers = decltype([](int) {});
static_assert(detail::inputs_of<OfNumbers>() == -1);

template <class... Args>
concept Maximum = requires(Args... args) { max(args...); };
static_assert(Maximum<Tensor, Tensor> && Maximum<Tensor, Variable> && Maximum<Tensor, int>);
static_assert(!Maximum<Tensor, double>);  // max(x, 0) reduces over axis 0
template <class... Args>
concept Sum = requires(Args... args) { sum(args...); };
template <class... Args>
concept Norm = requires(Args... args) { norm(args...); };
static_assert(Norm<Tensor> && Norm<Tensor, ReduceOptions> && !Norm<Tensor, int>);  // axis or order?
static_assert(Sum<Tensor, int, bool> && Sum<Tensor, int64_t> && !Sum<Tensor, bool>);

}  // namespace

TEST_CASE("compile accepts generic lambdas and functions that return pairs, tuples and arrays") {
  const Tensor a = tensor({2, 3}, {2}), b = tensor({5, 7}, {2});
  auto [sum, product] =
      compile([](auto x, const auto& y) { return std::pair(x + y, x * y); })(a, b);
  CHECK(sum.to_doubles() == Doubles{7, 10});
  CHECK(product.to_doubles() == Doubles{10, 21});
  auto of_function = compile(sum_and_product);
  CHECK(of_function(a, b).second.to_doubles() == Doubles{10, 21});
  auto [one, two, three] =
      compile([](Tensor x) { return std::tuple(x, x * 2, x * 3); })(tensor({1}, {1}));
  CHECK(three.item() == 3);
  CHECK(compile([](auto x) { return std::array{x, x + 1}; })(a)[1].to_doubles() == Doubles{3, 4});
  const Variable w("w", {DType::f32, {}});
  auto none = compile([&](auto x) { w.assign(w.value() + x); });
  none(scalar(2));
  CHECK(w.value().item() == 2);
  CHECK(compile([](Tensor x) noexcept { return x; })(a).to_doubles() == Doubles{2, 3});
  CHECK(compile([] { return ones({2}); })().to_doubles() == Doubles{1, 1});
}

TEST_CASE("reductions accept axes by number and max and min accept two tensors") {
  const Tensor x = tensor({1.0, 5.0, 3.0, 4.0}, {2, 2}), y = tensor({2.0, 2.0}, {2});
  CHECK(sum(x, 1).to_doubles() == Doubles{6, 7});
  CHECK(sum(x, -1, true).shape() == Shape{2, 1});
  CHECK(mean(x, 0).to_doubles() == Doubles{2, 4.5});
  CHECK(prod(x, 0).to_doubles() == Doubles{3, 20});
  CHECK(max(x, 0).to_doubles() == Doubles{3, 5});
  CHECK(min(x, 1).to_doubles() == Doubles{1, 3});
  CHECK(variance(x, 0).to_doubles() == Doubles{2, 0.5});
  CHECK(logsumexp(x * 0, 1).to_doubles()[0] == doctest::Approx(0.693147));
  CHECK(any(x > 4, 0).to_doubles() == Doubles{0, 1});
  CHECK(all(x > 2, 1).to_doubles() == Doubles{0, 1});
  const int64_t first = 0;
  CHECK(sum(x, {first, 1}).to_doubles() == Doubles{13});
  CHECK(sum(x, {0, -1}, true).shape() == Shape{1, 1});
  CHECK(max(x, {1}).to_doubles() == Doubles{5, 4});
  CHECK(min(x, {0, 1}).item() == 1);
  CHECK(variance(x, {}, 0).item() == doctest::Approx(2.1875));  // no axes; correction 0
  CHECK(sum(x, {.axes = {0, 1}, .keepdim = true}).shape() == Shape{1, 1});
  CHECK(max(x, y).to_doubles() == Doubles{2, 5, 3, 4});
  CHECK(min(x, y).to_doubles() == Doubles{1, 2, 2, 2});
}

TEST_CASE("two steps on two threads share an arena, and neither's results change") {
  const auto step_of = [](double factor) {
    return CompiledStep(
        [factor](std::span<const Tensor> in) { return std::vector{exp(in[0] * factor)}; }, {});
  };
  CompiledStep one = step_of(1), two = step_of(2);
  const std::array<Tensor, 1> x{full({4096}, 0.5).eval()};
  const auto once = [&](CompiledStep& step) { return step.run(x)[0].to_doubles(); };
  const Doubles of_two = once(two), of_one = once(one);
  // The first run of another thread leaves this thread's last results where they are.
  const std::span<const Tensor> held = one.run(x);
  std::thread([&] { CHECK(once(two) == of_two); }).join();
  CHECK(held[0].to_doubles() == of_one);

  std::atomic<int> wrong{0};
  const auto repeat = [&](CompiledStep& step, const Doubles& want) {
    for (int i = 0; i < 2000; ++i) wrong += once(step) != want;
  };
  std::thread other([&] { repeat(one, of_one); });
  repeat(two, of_two);
  other.join();
  CHECK(wrong == 0);
}
