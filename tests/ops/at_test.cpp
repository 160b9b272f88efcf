// Tests slices and updates at a position known at run time, and gradients that a user defines.
#include <vector>

#include <doctest/doctest.h>

#include "tests/ops/elements.h"
#include "tests/ops/refusals.h"
#include "tests/support/interpreter.h"
#include "tests/support/planned.h"
#include "tests/support/values.h"
#include "weft/base/memory/storage.h"
#include "weft/ops/autodiff.h"

using namespace weft;
using namespace weft::testing;

namespace {
using Doubles = std::vector<double>;

Value counting(const Shape& shape, double first) {
  return cast(reshape(arange(element_count(shape)), shape), DType::f64) + first;
}
Value gradient_of(const Value& loss, const Value& x) {
  return gradients(loss, std::span(&x, 1)).front();
}
}  // namespace

TEST_CASE("slice_at and update_at agree with loops that skip out-of-range indices") {
  const Value x = counting({2, 5, 3}, 1), updates = counting({2, 2, 3}, 100);
  const Value weights = counting({2, 2, 3}, 7), all_weights = counting({2, 5, 3}, 7);
  const auto index = [](int64_t i, int64_t j, int64_t k, int64_t extent) {
    return static_cast<size_t>((i * extent + j) * 3 + k);
  };
  for (const int64_t start : {-3, -1, 0, 2, 3, 4, 5, 9}) {
    INFO("start " << start);
    const Value place =
        from_buffer(interpret(scalar(static_cast<double>(start), DType::i32))->storage->buffer(),
                    {DType::i32, {}});
    const Doubles in = elements(interpret(x)), given = elements(interpret(updates));
    Doubles read(12), put = in, read_slope(30), put_slope(30), updates_slope(12);
    for (int64_t i = 0; i < 2; ++i)
      for (int64_t k = 0; k < 3; ++k) {
        for (int64_t j = 0; j < 5; ++j)
          put_slope[index(i, j, k, 5)] = 7 + static_cast<double>(index(i, j, k, 5));
        for (int64_t j = 0; j < 2; ++j) {
          if (start + j < 0 || start + j >= 5) continue;
          const size_t whole = index(i, start + j, k, 5), part = index(i, j, k, 2);
          read[part] = in[whole];
          put[whole] = given[part];
          read_slope[whole] = 7 + static_cast<double>(part);
          put_slope[whole] = 0;
          updates_slope[part] = 7 + static_cast<double>(whole);
        }
      }
    CHECK(run(slice_at(x, 1, place, 2)) == read);
    CHECK(run(update_at(x, -2, place, updates)) == put);
    CHECK(run(gradient_of(sum(slice_at(x, 1, place, 2) * weights), x)) == read_slope);
    const Value loss = sum(update_at(x, 1, place, updates) * all_weights);
    CHECK(run(gradient_of(loss, x)) == put_slope);
    CHECK(run(gradient_of(loss, updates)) == updates_slope);
  }
  CHECK(run(slice_at(arange(5), 0, 3, 2)) == Doubles{3, 4});
  CHECK(run(update_at(arange(5), 0, arange(1), full({1}, 9, DType::i64))) ==
        Doubles{9, 1, 2, 3, 4});
}

TEST_CASE("update_at takes a start for each row of the first axis") {
  const Value x = counting({2, 5, 3}, 1), updates = counting({2, 2, 3}, 100);
  const Value weights = counting({2, 5, 3}, 7);
  for (const std::vector<int64_t>& starts :
       {std::vector<int64_t>{0, 3}, {-1, 4}, {2, 2}, {-9, 9}, {1, -2}}) {
    INFO("starts " << starts[0] << " " << starts[1]);
    const Value start = interpret(constant(Doubles(starts.begin(), starts.end()), {2}, DType::i64));
    const Doubles given = elements(interpret(updates)), all_weights = elements(interpret(weights));
    Doubles put = elements(interpret(x)), put_slope = all_weights, updates_slope(12);
    for (int64_t i = 0; i < 2; ++i)
      for (int64_t j = 0; j < 2; ++j)
        for (int64_t k = 0; k < 3; ++k) {
          const int64_t place = starts[static_cast<size_t>(i)] + j;
          if (place < 0 || place >= 5) continue;
          const auto whole = static_cast<size_t>((i * 5 + place) * 3 + k);
          const auto part = static_cast<size_t>((i * 2 + j) * 3 + k);
          put[whole] = given[part];
          put_slope[whole] = 0;
          updates_slope[part] = all_weights[whole];
        }
    const Value y = update_at(x, 1, start, updates);
    CHECK(run(y) == put);
    CHECK(run(gradient_of(sum(y * weights), x)) == put_slope);
    CHECK(run(gradient_of(sum(y * weights), updates)) == updates_slope);
  }
}

TEST_CASE("custom_gradient replaces the gradient of an expression") {
  const Value x = constant(Doubles{0.4, 1.6, -2.7}, {3}, DType::f64), w = counting({3}, 5);
  const Value through =
      custom_gradient(round(x), {x}, [](const Value& dy) { return std::vector{dy}; });
  CHECK(run(through) == Doubles{0, 2, -3});
  CHECK(run(gradient_of(sum(through * w), x)) == Doubles{5, 6, 7});
  // The expression's own gradient is ignored.
  const Value reversed =
      custom_gradient(x * x, {x}, [](const Value& dy) { return std::vector{-dy}; });
  CHECK(run(gradient_of(sum(reversed * w), x)) == Doubles{-5, -6, -7});
  const Value behind = exp(x);
  CHECK(run(gradient_of(
            sum(custom_gradient(behind * behind, {behind},
                                [&](const Value& dy) { return std::vector{dy / behind}; })),
            x)) == Doubles{1, 1, 1});
  // An undefined gradient is zero, and an input may be one that the value does not depend on.
  const Value y =
      custom_gradient(x + w, {x, w}, [](const Value& dy) { return std::vector{Value(), 2 * dy}; });
  CHECK(run(gradient_of(sum(y), x)) == Doubles{0, 0, 0});
  CHECK(run(gradient_of(sum(y), w)) == Doubles{2, 2, 2});
}

TEST_CASE("invalid arguments of slice_at, update_at and custom_gradient are refused") {
  const Value x = zeros({2, 3});
  const auto by_rule = [&](const GradientRule& rule) {
    gradient_of(sum(custom_gradient(x, {x}, rule)), x);
  };
  check_calls({
      {"[slice_at] start must be one integer. Got i64[2].",
       [&] { slice_at(x, 1, zeros({2}, DType::i64), 1); }},
      {"[slice_at] start must be one integer. Got f32[].", [&] { slice_at(x, 1, 0.5, 1); }},
      {"[slice_at] size must be at least 0. Got -1.", [&] { slice_at(x, 1, 0, -1); }},
      {accepted, [&] { slice_at(x, 1, 0, 0); }},
      {"[update_at] updates must be f32[2, 3], of any extent along axis 1. Got f32[3, 1].",
       [&] { update_at(x, 1, 0, zeros({3, 1})); }},
      {"[update_at] updates must be f32[2, 3], of any extent along axis 1. Got i64[2, 1].",
       [&] { update_at(x, 1, 0, zeros({2, 1}, DType::i64)); }},
      {accepted, [&] { update_at(x, 1, 0, zeros({2, 7})); }},
      {"[custom_gradient] no gradient rule is given.", [&] { custom_gradient(x, {x}, nullptr); }},
      {"[custom_gradient] an input is empty.",
       [&] { custom_gradient(x, {Value()}, [](const Value& dy) { return std::vector{dy}; }); }},
      {"[custom_gradient] the rule must give one gradient per input (1). Got 0.",
       [&] { by_rule([](const Value&) { return std::vector<Value>(); }); }},
      {"[custom_gradient] gradient 0 must be f32[2, 3], as its input is. Got f32[].",
       [&] { by_rule([](const Value& dy) { return std::vector{sum(dy)}; }); }},
      {accepted, [&] { by_rule([](const Value& dy) { return std::vector{dy}; }); }},
  });
}
