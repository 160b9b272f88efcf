// Defines the elementwise functions of two and three values. This is one file because it is a list:
// a definition of each function, and a line that applies it.
#include <algorithm>
#include <cmath>
#include <limits>

#include "weft/ops/apply.h"
#include "weft/ops/scalar.h"
#include "weft/ops/wide.h"

namespace weft {
namespace {
constexpr std::string_view yields_bool = "yields bool";

const OpDef& add_def = define({
    .name = "add",
    .kind = OpKind::elementwise,
    .arity = 2,
    .gradient = [](const Tensor&, const Tensor& dy) -> Gradients { return {dy, dy}; },
    .scalar = ScalarOp::add,
    .expression = [](Exprs x) -> Expr { return x[0] + x[1]; },
    .commutes = true,
    .exact = Exact::always,
    .oracle = [](double a, double b, double) { return a + b; },
    .integer_oracle = [](int64_t a, int64_t b, int64_t) { return plus(a, b); },
    .test = {.integers = true},
});

const OpDef& sub_def = define({
    .name = "sub",
    .kind = OpKind::elementwise,
    .arity = 2,
    .gradient = [](const Tensor&, const Tensor& dy) -> Gradients { return {dy, -dy}; },
    .scalar = ScalarOp::sub,
    .expression = [](Exprs x) -> Expr { return x[0] - x[1]; },
    .exact = Exact::always,
    .oracle = [](double a, double b, double) { return a - b; },
    .integer_oracle = [](int64_t a, int64_t b, int64_t) { return minus(a, b); },
    .test = {.integers = true},
});

const OpDef& mul_def = define({
    .name = "mul",
    .kind = OpKind::elementwise,
    .arity = 2,
    .gradient = [](const Tensor& y, const Tensor& dy) -> Gradients {
      const Tensor& a = y->inputs[0];
      const Tensor& b = y->inputs[1];
      return {dy * b, dy * a};
    },
    .scalar = ScalarOp::mul,
    .expression = [](Exprs x) -> Expr { return x[0] * x[1]; },
    .commutes = true,
    .exact = Exact::always,
    .oracle = [](double a, double b, double) { return a * b; },
    .integer_oracle = [](int64_t a, int64_t b, int64_t) { return times(a, b); },
    .test = {.integers = true},
});

const OpDef& div_def = define({
    .name = "div",
    .kind = OpKind::elementwise,
    .arity = 2,
    .gradient = [](const Tensor& y, const Tensor& dy) -> Gradients {
      const Tensor& b = y->inputs[1];
      return {dy / b, -(dy * y / b)};
    },
    .scalar = ScalarOp::div,
    .expression = [](Exprs x) -> Expr { return x[0] / x[1]; },
    .exact = Exact::always,
    .oracle = [](double a, double b, double) { return a / b; },
    .test = {.second_low = 0.5, .second_high = 3},
});

Expr pow_code(Exprs x) {
  const DType type = x[0].type();
  const Expr power = call("pow", to_float(x[0]), to_float(x[1]));
  if (is_float(type)) return power;
  // rint removes the error of a device's pow; a negative exponent gives a fraction, which
  // truncates.
  return convert(select(x[1] < 0.0, power, rint(power)), type);
}
const OpDef& pow_def = define({
    .name = "pow",
    .kind = OpKind::elementwise,
    .arity = 2,
    .gradient = [](const Tensor& y, const Tensor& dy) -> Gradients {
      const Tensor& a = y->inputs[0];
      const Tensor& b = y->inputs[1];
      // a^0 is constant in a, and 0^b (b >= 0) in b. The factors beside these slopes of 0 must be
      // finite, so that neither the slopes nor their own gradients are NaN.
      const Tensor lower = select(b == 0, 1, b) - 1;
      const Tensor is_flat = logical_and(a == 0, b >= 0);
      return {dy * b * pow(a, lower), dy * y * log(select(is_flat, 1, a))};
    },
    .scalar = ScalarOp::pow,
    .expression = pow_code,
    .oracle = [](double a, double b, double) { return std::pow(a, b); },
    .test = {.low = 0.2, .high = 3},
});

// Returns an operand's share of the gradient of an extreme: 0 where the other operand `wins`, half
// of dy where both are equal. With a NaN neither operand wins, and both get dy.
Tensor share(const Tensor& wins, const Tensor& is_tie, const Tensor& dy) {
  return select(is_tie, 0.5 * dy, select(wins, 0.0, dy));
}

const OpDef& maximum_def = define({
    .name = "maximum",
    .kind = OpKind::elementwise,
    .arity = 2,
    .doc = "the greater operand; equal ones share the gradient",
    .gradient = [](const Tensor& y, const Tensor& dy) -> Gradients {
      const Tensor& a = y->inputs[0];
      const Tensor& b = y->inputs[1];
      const Tensor is_tie = a == b;
      return {share(b > a, is_tie, dy), share(a > b, is_tie, dy)};
    },
    .scalar = ScalarOp::maximum,
    .expression = [](Exprs x) -> Expr { return maximum(x[0], x[1]); },
    .representable = true,
    .exact = Exact::always,
    .oracle = [](double a, double b, double) { return a != a || a > b ? a : b; },
    .integer_oracle = [](int64_t a, int64_t b, int64_t) { return a > b ? a : b; },
    .test = {.integers = true},
});

const OpDef& minimum_def = define({
    .name = "minimum",
    .kind = OpKind::elementwise,
    .arity = 2,
    .doc = "the smaller operand; equal ones share the gradient",
    .gradient = [](const Tensor& y, const Tensor& dy) -> Gradients {
      const Tensor& a = y->inputs[0];
      const Tensor& b = y->inputs[1];
      const Tensor is_tie = a == b;
      return {share(b < a, is_tie, dy), share(a < b, is_tie, dy)};
    },
    .scalar = ScalarOp::minimum,
    .expression = [](Exprs x) -> Expr { return minimum(x[0], x[1]); },
    .representable = true,
    .exact = Exact::always,
    .oracle = [](double a, double b, double) { return a != a || a < b ? a : b; },
    .integer_oracle = [](int64_t a, int64_t b, int64_t) { return a < b ? a : b; },
    .test = {.integers = true},
});

// floor_quotient and floor_remainder divide rounding to minus infinity; division by zero gives 0.
int64_t floor_quotient(int64_t a, int64_t b) {
  if (b == 0) return 0;
  if (b == -1) return times(a, -1);  // the least integer has no negative: wraps, no trap
  return a / b - (a % b != 0 && (a < 0) != (b < 0));
}
int64_t floor_remainder(int64_t a, int64_t b) {
  return b == 0 ? 0 : minus(a, times(floor_quotient(a, b), b));
}
// fmod is exact, however large the quotient.
Expr remainder_code(Exprs x) {
  const DType type = x[0].type();
  if (!is_float(type)) return floored_rest(x[1], x[0] % x[1]);
  const Expr a = convert(x[0], DType::f64), b = convert(x[1], DType::f64);
  return convert(floored_rest(b, call("fmod", a, b)), type);
}
double float_remainder(double a, double b) {
  const double rest = std::fmod(a, b);
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}
// Divides a multiple of b, whose quotient cannot round up to the next whole number. In f64 the
// quotient of two f32 cannot either.
Expr floor_divide_code(Exprs x) {
  const Expr a = x[0], b = x[1];
  if (a.type() == DType::f64) {
    const Expr quotient = a / b, rest = call("fmod", a, b), whole = rint((a - rest) / b);
    const Expr down = (rest != 0.0) & ((rest < 0.0) != (b < 0.0));
    const Expr truncated = select(whole == 0.0, quotient * 0.0, whole);  // 0 with a sign
    const Expr floored = select(down, whole - 1, truncated);
    return floored_quotient(a, b, select(b == 0.0, quotient, floored));
  }
  if (is_float(a.type())) {
    const Expr quotient = convert(a, DType::f64) / convert(b, DType::f64);
    return convert(floored_quotient(a, b, floor(quotient)), a.type());
  }
  const Expr quotient = a / b, inexact = quotient * b != a, opposite = (a < 0.0) != (b < 0.0);
  return select((b != 0.0) & inexact & opposite, quotient - 1, quotient);
}
double float_floor_quotient(double a, double b) {
  if (b == 0) return a / b;
  const double rest = std::fmod(a, b), whole = std::nearbyint((a - rest) / b);
  if (rest != 0 && (rest < 0) != (b < 0)) return whole - 1;
  return whole == 0 ? a / b * 0 : whole;
}

const OpDef& remainder_def = define({
    .name = "remainder",
    .kind = OpKind::elementwise,
    .arity = 2,
    .gradient = [](const Tensor& y, const Tensor& dy) -> Gradients {
      const Tensor& a = y->inputs[0];
      const Tensor& b = y->inputs[1];
      return {dy, -(dy * floor_divide(a, b))};
    },
    .expression = remainder_code,
    .exact = Exact::on_integers,
    .oracle = [](double a, double b, double) { return float_remainder(a, b); },
    .integer_oracle = [](int64_t a, int64_t b, int64_t) { return floor_remainder(a, b); },
    .test = {.low = -5, .high = 5, .second_low = 1, .second_high = 4, .integers = true},
});

const OpDef& floor_divide_def = define({
    .name = "floor_divide",
    .kind = OpKind::elementwise,
    .arity = 2,
    .expression = floor_divide_code,
    .exact = Exact::on_integers,
    .oracle = [](double a, double b, double) { return float_floor_quotient(a, b); },
    .integer_oracle = [](int64_t a, int64_t b, int64_t) { return floor_quotient(a, b); },
    .test = {.low = -9,
             .high = 9,
             .second_low = 1,
             .second_high = 4,
             .integers = true,
             .no_gradient = flat},
});

Expr atan2_code(Exprs x) {
  const Expr angle = call("atan2", convert(x[0], DType::f64), convert(x[1], DType::f64));
  return convert(angle, x[0].type());
}
const OpDef& atan2_def = define({
    .name = "atan2",
    .kind = OpKind::elementwise,
    .arity = 2,
    .gradient = [](const Tensor& y, const Tensor& dy) -> Gradients {
      const Tensor& a = y->inputs[0];
      const Tensor& b = y->inputs[1];
      // At the origin, which has no angle, both gradients are 0.
      const Tensor squares = a * a + b * b, divisor = select(squares == 0, 1, squares);
      return {dy * b / divisor, -(dy * a / divisor)};
    },
    .expression = atan2_code,
    .oracle = [](double a, double b, double) { return std::atan2(a, b); },
    .test = {.second_low = 0.5, .second_high = 3},
});

const OpDef& equal_def = define({
    .name = "equal",
    .kind = OpKind::elementwise,
    .arity = 2,
    .expression = [](Exprs x) -> Expr { return x[0] == x[1]; },
    .commutes = true,
    .exact = Exact::always,
    .predicate = true,
    .oracle = [](double a, double b, double) -> double { return a == b; },
    .integer_oracle = [](int64_t a, int64_t b, int64_t) -> int64_t { return a == b; },
    .test = {.integers = true, .booleans = true, .no_gradient = yields_bool},
});

const OpDef& not_equal_def = define({
    .name = "not_equal",
    .kind = OpKind::elementwise,
    .arity = 2,
    .expression = [](Exprs x) -> Expr { return x[0] != x[1]; },
    .commutes = true,
    .exact = Exact::always,
    .predicate = true,
    .oracle = [](double a, double b, double) -> double { return a != b; },
    .integer_oracle = [](int64_t a, int64_t b, int64_t) -> int64_t { return a != b; },
    .test = {.integers = true, .booleans = true, .no_gradient = yields_bool},
});

const OpDef& less_def = define({
    .name = "less",
    .kind = OpKind::elementwise,
    .arity = 2,
    .expression = [](Exprs x) -> Expr { return x[0] < x[1]; },
    .exact = Exact::always,
    .predicate = true,
    .oracle = [](double a, double b, double) -> double { return a < b; },
    .integer_oracle = [](int64_t a, int64_t b, int64_t) -> int64_t { return a < b; },
    .test = {.integers = true, .booleans = true, .no_gradient = yields_bool},
});

const OpDef& less_equal_def = define({
    .name = "less_equal",
    .kind = OpKind::elementwise,
    .arity = 2,
    .expression = [](Exprs x) -> Expr { return x[0] <= x[1]; },
    .exact = Exact::always,
    .predicate = true,
    .oracle = [](double a, double b, double) -> double { return a <= b; },
    .integer_oracle = [](int64_t a, int64_t b, int64_t) -> int64_t { return a <= b; },
    .test = {.integers = true, .booleans = true, .no_gradient = yields_bool},
});

const OpDef& greater_def = define({
    .name = "greater",
    .kind = OpKind::elementwise,
    .arity = 2,
    .expression = [](Exprs x) -> Expr { return x[0] > x[1]; },
    .exact = Exact::always,
    .predicate = true,
    .oracle = [](double a, double b, double) -> double { return a > b; },
    .integer_oracle = [](int64_t a, int64_t b, int64_t) -> int64_t { return a > b; },
    .test = {.integers = true, .booleans = true, .no_gradient = yields_bool},
});

const OpDef& greater_equal_def = define({
    .name = "greater_equal",
    .kind = OpKind::elementwise,
    .arity = 2,
    .expression = [](Exprs x) -> Expr { return x[0] >= x[1]; },
    .exact = Exact::always,
    .predicate = true,
    .oracle = [](double a, double b, double) -> double { return a >= b; },
    .integer_oracle = [](int64_t a, int64_t b, int64_t) -> int64_t { return a >= b; },
    .test = {.integers = true, .booleans = true, .no_gradient = yields_bool},
});

const OpDef& logical_and_def = define({
    .name = "logical_and",
    .kind = OpKind::elementwise,
    .arity = 2,
    .scalar = ScalarOp::logical_and,
    .expression = [](Exprs x) -> Expr { return truth(x[0]) & truth(x[1]); },
    .commutes = true,
    .exact = Exact::always,
    .predicate = true,
    .oracle = [](double a, double b, double) -> double { return a != 0 && b != 0; },
    .test = {.low = -1, .high = 1, .integers = true, .booleans = true, .no_gradient = yields_bool},
});

const OpDef& logical_or_def = define({
    .name = "logical_or",
    .kind = OpKind::elementwise,
    .arity = 2,
    .scalar = ScalarOp::logical_or,
    .expression = [](Exprs x) -> Expr { return truth(x[0]) | truth(x[1]); },
    .commutes = true,
    .exact = Exact::always,
    .predicate = true,
    .oracle = [](double a, double b, double) -> double { return a != 0 || b != 0; },
    .test = {.low = -1, .high = 1, .integers = true, .booleans = true, .no_gradient = yields_bool},
});

const OpDef& logical_xor_def = define({
    .name = "logical_xor",
    .kind = OpKind::elementwise,
    .arity = 2,
    .expression = [](Exprs x) -> Expr { return truth(x[0]) ^ truth(x[1]); },
    .commutes = true,
    .exact = Exact::always,
    .predicate = true,
    .oracle = [](double a, double b, double) -> double { return (a != 0) != (b != 0); },
    .test = {.low = -1, .high = 1, .integers = true, .booleans = true, .no_gradient = yields_bool},
});

const OpDef& select_def = define({
    .name = "select",
    .kind = OpKind::elementwise,
    .arity = 3,
    .doc = "condition ? a : b",
    .infer = [](std::span<const Tensor> inputs, const Attrs&) -> Type {
      WEFT_CHECK(inputs[0].dtype() == DType::boolean,
                 "[select] the condition must be bool. Got {}.", name(inputs[0].dtype()));
      WEFT_CHECK(inputs[1].type() == inputs[2].type() && inputs[0].shape() == inputs[1].shape(),
                 "[select] operands differ in type. Got {}, {} and {}.",
                 to_string(inputs[0].type()), to_string(inputs[1].type()),
                 to_string(inputs[2].type()));
      return inputs[1].type();
    },
    .gradient = [](const Tensor& y, const Tensor& dy) -> Gradients {
      Tensor zero = zeros_like(dy);
      return {Tensor(), select(y->inputs[0], dy, zero), select(y->inputs[0], zero, dy)};
    },
    .scalar = ScalarOp::select,
    .expression = [](Exprs x) -> Expr { return select(x[0], x[1], x[2]); },
    .representable = true,
    .exact = Exact::always,
    .oracle = [](double condition, double a, double b) { return condition != 0 ? a : b; },
    .integer_oracle = [](int64_t a, int64_t b, int64_t c) { return a != 0 ? b : c; },
    .test = {.integers = true, .booleans = true},
});

// Without attr "open" the gradient also passes at the bounds, as in PyTorch's clamp; with it only
// between them, as in hardtanh. Bounds with low > high give `high`.
const OpDef& clamp_def = define({
    .name = "clamp",
    .arity = 3,
    .doc = "min(max(x, low), high)",
    .infer = same_type,
    .gradient = [](const Tensor& y, const Tensor& dy) -> Gradients {
      const Tensor &x = y->inputs[0], &low = y->inputs[1], &high = y->inputs[2];
      const bool open = y->attrs.has("open");
      const Tensor above = open ? x > low : x >= low, below = open ? x < high : x <= high;
      const Tensor is_low = logical_and(x < low, low < high);
      const Tensor is_high = logical_or(x > high, high < low);
      return {select(logical_and(above, below), dy, 0.0), select(is_low, dy, 0.0),
              select(is_high, dy, 0.0)};
    },
    .decompose =
        [](const Node& node) {
          return minimum(maximum(node.inputs[0], node.inputs[1]), node.inputs[2]);
        },
    .oracle = [](double x, double low,
                 double high) { return x != x ? x : std::min(std::max(x, low), high); },
    .test = {.integers = true},
});

// Returns a - b, which is 0 for equal infinities.
Tensor difference_of(const Tensor& a, const Tensor& b) {
  return select(logical_and(a == b, logical_not(is_finite(a))), 0.0, a - b);
}

const OpDef& logaddexp_def = define({
    .name = "logaddexp",
    .arity = 2,
    .doc = "log(exp(a) + exp(b)), without overflow",
    .gradient = [](const Tensor& y, const Tensor& dy) -> Gradients {
      const DType dtype = y.dtype();
      const Tensor difference = difference_of(widen(y->inputs[0]), widen(y->inputs[1]));
      return {narrow_to(widen(dy) * sigmoid(difference), dtype),
              narrow_to(widen(dy) * sigmoid(-difference), dtype)};
    },
    .decompose =
        [](const Node& node) {
          const Tensor a = widen(node.inputs[0]), b = widen(node.inputs[1]);
          const Tensor rest = log1p(exp(-abs(difference_of(a, b))));
          return narrow_to(maximum(a, b) + rest, node.type.dtype);
        },
    .oracle = [](double a, double b, double) { return std::log(std::exp(a) + std::exp(b)); },
    .test = {.low = -20, .high = 20},
});

// Adds 16 random bits below the precision of bf16 and truncates.
Expr round_stochastic_code(Exprs x) {
  const Expr noise = convert(x[1] * 0x1p16, DType::i32);
  const Expr rounded = bitcast((bitcast(x[0], DType::i32) + noise) & ~int64_t{0xffff}, DType::f32);
  return select(is_finite(x[0]), rounded, x[0].code->op(loop::Op::round_bf16, DType::f32, x[0]));
}
// Stochastic rounding (Gupta et al. 2015) uses 16 bits of the noise, as many as bfloat16 drops.
const OpDef& round_stochastic_def = define({
    .name = "round_stochastic",
    .kind = OpKind::elementwise,
    .arity = 2,
    .doc = "f32 to bf16, up or down by noise in [0, 1)",
    .infer = [](std::span<const Tensor> inputs, const Attrs&) -> Type {
      const Type& x = inputs[0].type();
      WEFT_CHECK(x.dtype == DType::f32 && inputs[1].type() == x,
                 "[round_stochastic] takes f32 values and as much f32 noise. Got {} and {}.",
                 to_string(x), to_string(inputs[1].type()));
      return {DType::bf16, x.shape};
    },
    .expression = round_stochastic_code,
    .representable = true,
    .oracle = [](double x, double noise, double) -> double {
      if (!std::isfinite(x)) return x;
      int exponent = 0;
      std::frexp(x, &exponent);
      const double spacing = std::ldexp(1.0, std::max(exponent, -125) - 8);  // bfloat16's spacing
      const double steps = std::fabs(x) / spacing, below = std::floor(steps);
      const bool up = steps - below + std::floor(noise * 0x1p16) * 0x1p-16 >= 1;
      return std::copysign((below + (up ? 1 : 0)) * spacing, x);
    },
    .test = {.second_low = 0, .second_high = 0.999, .no_gradient = flat},
});
}  // namespace

Tensor add(Arg a, Arg b) { return apply_binary(add_def, a, b); }
Tensor sub(Arg a, Arg b) { return apply_binary(sub_def, a, b); }
Tensor mul(Arg a, Arg b) { return apply_binary(mul_def, a, b); }
Tensor div(Arg a, Arg b) { return apply_binary(div_def, a, b); }
Tensor maximum(Arg a, Arg b) { return apply_binary(maximum_def, a, b); }
Tensor minimum(Arg a, Arg b) { return apply_binary(minimum_def, a, b); }
Tensor remainder(Arg a, Arg b) { return apply_binary(remainder_def, a, b); }
Tensor floor_divide(Arg a, Arg b) { return apply_binary(floor_divide_def, a, b); }
Tensor atan2(Arg y, Arg x) { return apply_binary(atan2_def, y, x); }
Tensor logaddexp(Arg a, Arg b) { return apply_binary(logaddexp_def, a, b); }
Tensor equal(Arg a, Arg b) { return apply_binary(equal_def, a, b); }
Tensor not_equal(Arg a, Arg b) { return apply_binary(not_equal_def, a, b); }
Tensor less(Arg a, Arg b) { return apply_binary(less_def, a, b); }
Tensor less_equal(Arg a, Arg b) { return apply_binary(less_equal_def, a, b); }
Tensor greater(Arg a, Arg b) { return apply_binary(greater_def, a, b); }
Tensor greater_equal(Arg a, Arg b) { return apply_binary(greater_equal_def, a, b); }
Tensor logical_and(Arg a, Arg b) { return apply_binary(logical_and_def, a, b); }
Tensor logical_or(Arg a, Arg b) { return apply_binary(logical_or_def, a, b); }
Tensor logical_xor(Arg a, Arg b) { return apply_binary(logical_xor_def, a, b); }

namespace {
void check_booleans(const Arg& a, const Arg& b, std::string_view op, std::string_view function) {
  CallSite here(b.where, op);
  for (const Arg* arg : {&a, &b})
    WEFT_CHECK(!arg->is_scalar && arg->value.dtype() == DType::boolean,
               "[{}] combines tensors of bool. Got {}. Hint: {}(a, b) takes 0 for false.", op,
               arg->is_scalar ? "a number" : to_string(arg->value.type()), function);
}
}  // namespace
Tensor operator&(const Tensor& a, Arg b) {
  check_booleans({a, b.where}, b, "operator&", "logical_and");
  return logical_and({a, b.where}, b);
}
Tensor operator|(const Tensor& a, Arg b) {
  check_booleans({a, b.where}, b, "operator|", "logical_or");
  return logical_or({a, b.where}, b);
}

Tensor round_stochastic(Arg x, Arg noise) { return apply_binary(round_stochastic_def, x, noise); }
namespace {
// Computes powers by squaring, bit by bit of the exponent. Exponents from 64 on fit only for the
// bases -1, 0 and 1, where only their parity counts; negative ones likewise for -1 and 1.
Tensor integer_power(const Tensor& base, const Tensor& exponent) {
  Tensor odd = remainder(exponent, 2) == 1;
  Tensor left = select(exponent < 64, exponent, remainder(exponent, 2) + 62);
  Tensor power = ones_like(base), square = base;
  for (int bit = 0; bit < 6; ++bit) {
    power = select(remainder(left, 2) == 1, power * square, power);
    left = floor_divide(left, 2);
    square = square * square;
  }
  Tensor inverse = select(abs(base) == 1, select(odd, base, 1), 0);
  return select(exponent < 0, inverse, power);
}
}  // namespace

Tensor pow(Arg a, Arg b) {
  CallSite here(a.where);
  // Products keep small whole powers exact at negative bases and differentiate without a logarithm.
  bool whole = !b.value.defined() && (b.integral || is_float(a.value.dtype()));
  if (whole && b.scalar == 1) return a.value;
  if (whole && b.scalar == 2) return a.value * a.value;
  if (whole && b.scalar == 3) return a.value * a.value * a.value;
  auto [base, exponent] = match(a, b, "pow");
  if (is_integer(base.dtype())) return integer_power(base, exponent);
  return apply_binary(pow_def, base, exponent);
}

Tensor select(Arg condition, Arg a, Arg b) {
  CallSite here(condition.where);
  auto [x, y] = match(a, b, "select");
  Shape shape = broadcast_shapes(condition.value.shape(), x.shape(), "select");
  return make_node(
      select_def, {broadcast_to(condition, shape), broadcast_to(x, shape), broadcast_to(y, shape)});
}

Tensor clamp(Arg x, double low, double high) {
  CallSite here(x.where);
  WEFT_CHECK(low <= high, "[clamp] low must not exceed high. Got {} and {}.", low, high);
  const auto [value, least] = match(x, low, "clamp");
  return make_node(clamp_def, {value, least, match(x, high, "clamp").second});
}
}  // namespace weft
