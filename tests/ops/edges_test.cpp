// Tests edge cases of operations on every backend: labels outside of the classes, empty reductions,
// integers that no double represents.
#include <cmath>
#include <limits>
#include <numbers>

#include <doctest/doctest.h>

#include "tests/support/near.h"
#include "tests/support/planned.h"
#include "tests/support/values.h"
#include "weft/base/memory/buffer.h"
#include "weft/ops/autodiff.h"
#include "weft/ops/ops.h"

using namespace weft;
using namespace weft::testing;

namespace {
Value integers(const std::vector<int64_t>& list, DType dtype = DType::i64) {
  Random random(0);
  Value x = random_values({dtype, {static_cast<int64_t>(list.size())}}, 0, 0, random);
  for (size_t i = 0; i < list.size(); ++i)
    store_int(x->data(), dtype, static_cast<int64_t>(i), list[i]);
  return x;
}
std::vector<int64_t> integers_of(const Value& x) {
  std::vector<int64_t> list(static_cast<size_t>(x.elements()));
  for (size_t i = 0; i < list.size(); ++i)
    list[i] = load_int(x->data(), x.dtype(), static_cast<int64_t>(i));
  return list;
}
std::vector<Value> run_on(std::vector<Value> outputs, const KernelLibrary& library) {
  Graph graph;
  graph.outputs = std::move(outputs);
  return run_planned(graph, {}, library);
}

struct LossAndGradient {
  double loss;
  std::vector<double> gradient;  // [3, 2]
};
// Returns the mean loss and gradient of three rows with labels 0, `label` and 1.
LossAndGradient cross_entropy_at(int64_t label, const CrossEntropyOptions& options,
                                 const KernelLibrary& library) {
  Value logits = constant(std::vector<double>{1, 2, 3, 5, 7, 4}, {3, 2}, DType::f32);
  Value loss = cross_entropy(logits, integers({0, label, 1}), options);
  std::vector<Value> results =
      run_on({loss, gradients(loss, std::vector<Value>{logits}).front()}, library);
  return {elements(results[0]).front(), elements(results[1])};
}
}  // namespace

TEST_CASE("a label outside the classes makes the loss and the gradient of its row NaN") {
  for (const KernelLibrary* library : backends())
    for (double smoothing : {0.0, 0.1})
      for (int64_t label : {int64_t{-1}, int64_t{2}, int64_t{5}, int64_t{1} << 32}) {
        CAPTURE(library->name());
        CAPTURE(label);
        auto [loss, gradient] = cross_entropy_at(label, {.label_smoothing = smoothing}, *library);
        CHECK(std::isnan(loss));
        for (size_t i = 0; i < 6; ++i) CHECK(std::isnan(gradient[i]) == (i / 2 == 1));
      }
}

TEST_CASE("an ignored label contributes neither to the loss nor to the gradient") {
  // The loss is -log p of the first and the last row, the gradient p - 1 at the label, both halved.
  const double first = std::log1p(std::exp(1.0)), last = std::log1p(std::exp(3.0));
  const double p = 1 / (1 + std::exp(-1.0)), q = 1 / (1 + std::exp(-3.0));
  for (const KernelLibrary* library : backends())
    for (int64_t label : {int64_t{-100}, int64_t{-1}, int64_t{7}, int64_t{1} << 32}) {
      CAPTURE(library->name());
      CAPTURE(label);
      auto [loss, gradient] = cross_entropy_at(label, {.ignore_index = label}, *library);
      CHECK(loss == near((first + last) / 2, 1e-6));
      const std::vector<double> expected = {-p / 2, p / 2, 0, 0, q / 2, -q / 2};
      for (size_t i = 0; i < 6; ++i) CHECK(gradient[i] == near(expected[i], 1e-6));
    }
}

TEST_CASE("labels of a narrow type work with an ignore_index beyond their range") {
  Value logits = zeros({1, 200});
  for (const KernelLibrary* library : backends()) {
    Value loss = cross_entropy(logits, integers({156}, DType::u8));  // -100 modulo 256
    CHECK(elements(run_on({loss}, *library)[0])[0] == near(std::log(200.0)));
  }
}

TEST_CASE("any over an empty axis is false and all is true") {
  Value none = zeros({0, 3}, DType::boolean);
  for (const KernelLibrary* library : backends()) {
    CAPTURE(library->name());
    auto all_results = run_on({any(none), all(none), any(none, {.axes = {0}, .keepdim = true}),
                               all(none, {.axes = {0}}), any(none, {.axes = {1}}), all(zeros({0}))},
                              *library);
    CHECK(integers_of(all_results[0]) == std::vector<int64_t>{0});
    CHECK(integers_of(all_results[1]) == std::vector<int64_t>{1});
    CHECK(integers_of(all_results[2]) == std::vector<int64_t>{0, 0, 0});
    CHECK(all_results[2].shape() == Shape{1, 3});
    CHECK(integers_of(all_results[3]) == std::vector<int64_t>{1, 1, 1});
    CHECK(all_results[3].shape() == Shape{3});
    CHECK(all_results[4].shape() == Shape{0});
    CHECK(integers_of(all_results[5]) == std::vector<int64_t>{1});
  }
}

TEST_CASE("integer powers are exact where they fit") {
  struct Power {
    int64_t base, exponent, result;
  };
  const std::vector<Power> powers = {{3, 30, 205891132094649},
                                     {3, 39, 4052555153018976267},
                                     {-3, 39, -4052555153018976267},
                                     {2, 62, int64_t{1} << 62},
                                     {-2, 63, std::numeric_limits<int64_t>::min()},
                                     {10, 18, 1000000000000000000},
                                     {7, 0, 1},
                                     {0, 0, 1},
                                     {0, 5, 0},
                                     {0, 64, 0},
                                     {0, -1, 0},
                                     {1, int64_t{1} << 60, 1},
                                     {-1, 1000001, -1},
                                     {-1, 1000002, 1},
                                     {1, -3, 1},
                                     {-1, -3, -1},
                                     {-1, -4, 1},
                                     {2, -1, 0},
                                     {-5, -2, 0}};
  std::vector<int64_t> bases, exponents, results;
  for (const Power& power : powers) {
    bases.push_back(power.base);
    exponents.push_back(power.exponent);
    results.push_back(power.result);
  }
  Value a = integers(bases), b = integers(exponents);
  Value narrow = integers({2, -2, 3, 11}, DType::i8);
  for (const KernelLibrary* library : backends()) {
    CAPTURE(library->name());
    auto got = run_on({pow(a, b), pow(narrow, 2), pow(narrow, 6), pow(2, narrow)}, *library);
    CHECK(integers_of(got[0]) == results);
    CHECK(integers_of(got[1]) == std::vector<int64_t>{4, 4, 9, 121});
    CHECK(integers_of(got[2]) == std::vector<int64_t>{64, 64, -39, 41});  // modulo 256
    CHECK(integers_of(got[3]) == std::vector<int64_t>{4, 0, 8, 0});
  }
  CHECK(pow(a, 3).dtype() == DType::i64);
  CHECK(pow(narrow, narrow).dtype() == DType::i8);
  CHECK(pow(a, 2.0).dtype() == DType::f32);
  CHECK(pow(a, 0.5).dtype() == DType::f32);
  CHECK(pow(2.5, a).dtype() == DType::f32);
}

TEST_CASE("logaddexp keeps infinities and splits the gradient of equal operands") {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  const Value a = constant(std::vector{infinity, infinity, -infinity, -infinity, 1000.0, 3.0}, {6},
                           DType::f32),
              b = constant(std::vector{infinity, -infinity, -infinity, 5.0, -1000.0, 3.0}, {6},
                           DType::f32);
  const Value y = logaddexp(a, b);
  const std::vector<Value> slopes = gradients(sum(y), std::vector{a, b});
  for (const KernelLibrary* library : backends()) {
    CAPTURE(library->name());
    const std::vector<Value> got = run_on({y, slopes[0], slopes[1]}, *library);
    const double doubled = 3 + std::numbers::ln2;
    CHECK(elements(got[0]) == std::vector{infinity, infinity, -infinity, 5.0, 1000.0,
                                          static_cast<double>(static_cast<float>(doubled))});
    CHECK(elements(got[1]) == std::vector{0.5, 1.0, 0.5, 0.0, 1.0, 0.5});
    CHECK(elements(got[2]) == std::vector{0.5, 0.0, 0.5, 1.0, 0.0, 0.5});
  }
}

TEST_CASE("narrow integers sum and multiply without wrapping") {
  for (const KernelLibrary* library : backends()) {
    CAPTURE(library->name());
    auto got = run_on(
        {sum(integers({100, 100, 100}, DType::i8)), prod(integers({200, 200, 200}, DType::u8)),
         sum(integers({2147483647, 2147483647}, DType::i32)), max(integers({3, 4}, DType::i16))},
        *library);
    CHECK(integers_of(got[0]) == std::vector<int64_t>{300});
    CHECK(integers_of(got[1]) == std::vector<int64_t>{8000000});
    CHECK(integers_of(got[2]) == std::vector<int64_t>{4294967294});
    CHECK(got[0].dtype() == DType::i64);
    CHECK(got[3].dtype() == DType::i16);
  }
}

TEST_CASE("remainders are exact, and have the sign of the divisor") {
  const double inf = INFINITY;
  for (DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16}) {
    // The last quotients are beyond 2^24 and 2^53, but for float16.
    const Value a = constant(std::vector<double>{inf, 5, -5, 5, -5, 0, 7, 6e4, 3e38, -3e38, 1e20},
                             {11}, dtype),
                b = constant(std::vector<double>{3, inf, inf, -inf, -inf, inf, -3, 7, 7, 3, 1e-20},
                             {11}, dtype);
    std::vector<double> want{NAN, 5, inf, -inf, -5, 0, -2};
    const std::vector<double> dividends = elements(a), divisors = elements(b);
    for (size_t i = want.size(); i < dividends.size(); ++i) {
      const double rest = std::fmod(dividends[i], divisors[i]);
      want.push_back(rest < 0 ? rest + divisors[i] : rest);
    }
    for (const KernelLibrary* library : backends()) {
      CAPTURE(library->name());
      CAPTURE(name(dtype));
      const std::vector<double> got = elements(run_on({remainder(a, b)}, *library)[0]);
      for (size_t i = 0; i < want.size(); ++i)
        CHECK((got[i] == want[i] || (std::isnan(got[i]) && std::isnan(want[i]))));
    }
  }
}

TEST_CASE("floor_divide of float64 divides what the remainder leaves, as Python does") {
  const Value a = constant(std::vector<double>{1, -1, 0.3, 1e300, 7, -7, 5, -5, 1}, {9},
                           DType::f64),
              b = constant(std::vector<double>{0.1, 0.1, 0.1, 3, 2, 2, INFINITY, INFINITY, 0}, {9},
                           DType::f64);
  for (const KernelLibrary* library : backends()) {
    CAPTURE(library->name());
    CHECK(elements(run_on({floor_divide(a, b)}, *library)[0]) ==
          std::vector<double>{9, -10, 2, 3.3333333333333335e299, 3, -4, 0, -1, INFINITY});
  }
}

TEST_CASE("norms and softmax over empty rows have empty gradients") {
  for (DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16})
    for (const Shape& shape : {Shape{17, 0}, Shape{0, 17}, Shape{3, 0, 5}, Shape{0, 0}})
      for (const KernelLibrary* library : backends()) {
        CAPTURE(library->name());
        Random random(1);
        Value x = input({dtype, shape}, 0);  // an input, since a constant would be folded
        for (const Value& y : {layer_norm(x), rms_norm(x), log_softmax(x), softmax(x)}) {
          Value loss = sum(square(y));
          Graph graph{.inputs = {x},
                      .outputs = {y, gradients(loss, std::vector<Value>{x}).front(), loss}};
          auto got = run_planned(
              graph, std::vector<Value>{random_values({dtype, shape}, -1, 1, random)}, *library);
          CHECK(got[0].shape() == shape);
          CHECK(got[1].shape() == shape);
          CHECK(elements(got[2]) == std::vector<double>{0});
        }
      }
}

TEST_CASE("masks of attention broadcast from any rank, and a row of which all is hidden is 0") {
  Random random(3);
  const Type type{DType::f32, {2, 3, 2, 4}};
  const std::vector<Value> values{random_values(type, -1, 1, random),
                                  random_values(type, -1, 1, random)};
  const Shape scores{2, 3, 2, 2};
  Graph graph{.inputs = {input(type, 0), input(type, 1)}};
  const auto add = [&](const Value& mask) {
    const Value &x = graph.inputs[0], y = attention(x, x, x, {.mask = mask});
    graph.outputs.push_back(y);
    graph.outputs.push_back(
        gradients(sum(y * graph.inputs[1]), std::vector{graph.inputs[0]}).front());
  };
  const std::vector<Shape> shapes{{2}, {2, 2}, {3, 1, 2}};
  for (DType dtype : {DType::boolean, DType::f32})
    for (const Shape& shape : shapes) {
      std::vector<double> numbers(static_cast<size_t>(element_count(shape)));
      for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = i % 3 == 1 ? 0 : 1.5;
      const Value mask = constant(numbers, shape, dtype);
      add(mask);
      add(broadcast_to(mask, scores));
    }
  add(constant(std::vector<double>{0, -INFINITY, -INFINITY, -INFINITY}, {2, 2}, DType::f32));
  for (const KernelLibrary* library : backends()) {
    CAPTURE(library->name());
    const std::vector<Value> got = run_planned(graph, values, *library);
    for (size_t i = 0; i + 4 <= got.size(); i += 4)
      for (size_t j : {i, i + 1}) CHECK(difference(got[j], got[j + 2], 1e-6) == "");
    const std::vector<double> x = elements(values[0]), weights = elements(values[1]);
    const std::vector<double> y = elements(got[got.size() - 2]), dx = elements(got.back());
    for (size_t i = 0; i < y.size(); ++i) {  // the first query sees the first key alone
      const bool is_first = i % 8 < 4;
      CHECK(y[i] == near(is_first ? x[i] : 0));
      CHECK(dx[i] == near(is_first ? weights[i] : 0));
    }
  }
}
