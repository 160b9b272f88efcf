// Tests user-defined operations: each is a single definition in this file and runs on every
// backend.
#include <cmath>
#include <numbers>
#include <vector>

#include <doctest/doctest.h>

#include "tests/io/helpers.h"
#include "tests/support/interpreter.h"
#include "tests/support/near.h"
#include "tests/support/planned.h"
#include "tests/support/skip.h"
#include "tests/support/values.h"
#include "weft/device/registry.h"
#include "weft/ops/apply.h"
#include "weft/ops/autodiff.h"
#include "weft/ops/scalar.h"
#include "weft/weft.h"

using namespace weft;
using namespace weft::testing;

namespace {
// Returns the derivative of log(gamma(x)) for x > 0: its asymptotic series at x + 8, where eight
// terms have float64 accuracy (Abramowitz and Stegun 1964, 6.3.18), and the recurrence back to x.
Value digamma(const Value& x) {
  constexpr double series[] = {-1.0 / 12,  1.0 / 120,     -1.0 / 252, 1.0 / 240,
                               -1.0 / 132, 691.0 / 32760, -1.0 / 12,  3617.0 / 8160};
  const Value far = x + 8.0, square = 1.0 / (far * far);
  Value sum = log(far) - 0.5 / far, power = square;
  for (double coefficient : series) {
    sum = sum + coefficient * power;
    power = power * square;
  }
  for (int i = 0; i < 8; ++i) sum = sum - 1.0 / (x + static_cast<double>(i));
  return sum;
}

const OpDef& gamma_def = define({
    .name = "tgamma",
    .kind = OpKind::elementwise,
    .doc = "the gamma function, by its name in C",
    .gradient = [](const Value& y, const Value& dy) -> Gradients {
      return {dy * y * digamma(y->inputs[0])};
    },
    .function = std::tgamma,
    .test = {.low = 0.5, .high = 4},
});
Value gamma(Arg x) { return apply_unary(gamma_def, x); }

double sawtooth_of(double x) { return x - std::floor(x); }
const OpDef& sawtooth_def = define({
    .name = "sawtooth",
    .kind = OpKind::elementwise,
    .doc = "the part behind the point, which C has no function of",
    .gradient = [](const Value&, const Value& dy) -> Gradients { return {dy}; },
    .function = sawtooth_of,
});
Value sawtooth(Arg x) { return apply_unary(sawtooth_def, x); }

const OpDef& hypot_def = define({
    .name = "hypot",
    .kind = OpKind::elementwise,
    .arity = 2,
    .doc = "the length of the hypotenuse, as scalar code",
    .gradient = [](const Value& y, const Value& dy) -> Gradients {
      return {dy * y->inputs[0] / y, dy * y->inputs[1] / y};
    },
    .expression = [](Exprs x) -> Expr { return sqrt(x[0] * x[0] + x[1] * x[1]); },
    .commutes = true,
    .oracle = [](double a, double b, double) { return std::hypot(a, b); },
    .test = {.low = 0.5, .high = 4},
});
Value hypot(Arg a, Arg b) { return apply_binary(hypot_def, a, b); }

// Returns the CPU library, and OpenCL's where there is a device.
std::vector<const KernelLibrary*> generators() {
  std::vector<const KernelLibrary*> all = {&library("cpu")};
  try {
    library("opencl").memory();
    all.push_back(&library("opencl"));
  } catch (const Error& none) {
    skipped(none.what());
  }
  return all;
}

constexpr int64_t count = 1000;
Value numbers(DType dtype) {  // in [0.5, 4)
  return constant(elements(interpret(0.5 + 3.5 / count * arange(count, DType::f64))), {count},
                  dtype);
}
// Applies a function to each element and returns the result in the type of `x`.
template <class F>
Value mapped(const Value& x, F&& function) {
  std::vector<double> numbers = elements(x);
  for (double& number : numbers) number = function(number);
  return constant(numbers, x.shape(), x.dtype());
}
}  // namespace

TEST_SUITE("own op") {
  TEST_CASE("a user's C function agrees with the C library on every backend") {
    for (DType dtype : {DType::f32, DType::f64}) {
      const Value x = numbers(dtype), y = gamma(x) * 2.0;
      const Value exact = mapped(x, [](double at) { return 2 * std::tgamma(at); });
      CHECK(difference(interpret(y), exact, 0) == "");
      for (const KernelLibrary* library : generators()) {
        INFO(library->name() << " " << name(dtype));
        const Value got = run_planned({.outputs = {y}}, {}, *library).front();
        CHECK(difference(got, exact, dtype == DType::f64 ? 1e-14 : 1.2e-7) == "");
      }
    }
  }
  TEST_CASE(
      "the derivative of a user's C function agrees with finite differences on every backend") {
    const Value x = numbers(DType::f64);
    const Graph graph{.outputs = gradients(sum(gamma(x)), std::vector{x})};
    const Value want = mapped(x, [](double at) {
      constexpr double h = 1e-4;
      const double near = std::tgamma(at + h) - std::tgamma(at - h),
                   far = std::tgamma(at + 2 * h) - std::tgamma(at - 2 * h);
      return (8 * near - far) / (12 * h);
    });
    CHECK(difference(interpret(graph).front(), want, 1e-10) == "");
    for (const KernelLibrary* library : generators()) {
      INFO(library->name());
      CHECK(difference(run_planned(graph, {}, *library).front(), want, 1e-10) == "");
    }
  }
  TEST_CASE("a user's function converts integers to float and rounds 16-bit results once") {
    const Value whole = constant(std::vector{1.0, 2.0, 3.0, 4.0, 5.0}, {5}, DType::i32);
    CHECK(elements(run_planned({.outputs = {gamma(whole)}}, {}, library("cpu")).front()) ==
          std::vector<double>{1, 1, 2, 6, 24});
    const Value half = constant(std::vector{0.5}, {1}, DType::bf16);
    const double root =
        static_cast<double>(to_float(to_bfloat16(static_cast<float>(std::sqrt(std::numbers::pi)))));
    CHECK(elements(run_planned({.outputs = {gamma(half)}}, {}, library("cpu")).front()) ==
          std::vector<double>{root});
  }
  TEST_CASE("a user's op that is defined after kernels have run is compiled") {
    const Value x = numbers(DType::f64);
    run_planned({.outputs = {gamma(x)}}, {}, library("cpu"));
    static const OpDef& cube_def = define({
        .name = "late_cube",
        .kind = OpKind::elementwise,
        .function = [](double at) { return at * at * at; },
        .test = {.no_gradient = "not needed here"},
    });
    const Value got =
        run_planned({.outputs = {apply_unary(cube_def, x)}}, {}, library("cpu")).front();
    CHECK(difference(got, interpret(x * x * x), 0) == "");
  }
  TEST_CASE("a function that C lacks runs on the CPU and a GPU refuses it by name") {
    const Value x = numbers(DType::f32);
    const Value want = mapped(x, sawtooth_of);
    for (const KernelLibrary* library : generators()) {
      const auto run = [&] {
        return run_planned({.outputs = {sawtooth(x)}}, {}, *library).front();
      };
      if (library->name() == "cpu")
        CHECK(difference(run(), want, 0) == "");
      else
        CHECK(test::error_of(run) ==
              "usage: [sawtooth] GPU kernels call a function by its name in C, and this operation "
              "has none. Hint: define sawtooth by `decompose`, as an expression of other "
              "operations.");
    }
  }
  TEST_CASE("a user's expression is code of the CPU and of GPUs") {
    for (DType dtype : {DType::f32, DType::f64, DType::bf16}) {
      const Value a = numbers(dtype), b = flip(numbers(dtype), {0});
      const Graph graph{.outputs = gradients(sum(hypot(a, b) * b), std::vector{a, b})};
      const std::vector<Interpreted> want = interpret_with_errors(graph);
      for (const KernelLibrary* library : generators()) {
        INFO(library->name() << " " << name(dtype));
        CHECK(disagreement(run_planned(graph, {}, *library), want, *library) == "");
      }
    }
  }
  TEST_CASE("an elementwise op without a function is refused") {
    CHECK_THROWS_WITH_AS(define({.name = "says nothing", .kind = OpKind::elementwise}),
                         doctest::Contains("says nothing needs a function of one number"),
                         InternalError);
  }
}
