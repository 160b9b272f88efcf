// Defines the elementwise functions of one value. A new one is a definition here and a line in
// ops.h. This is one file because it is a list: a definition of each function, and a line that
// applies it.
#include <cmath>
#include <numbers>

#include "weft/ops/apply.h"
#include "weft/ops/scalar.h"

namespace weft {
namespace {
constexpr double two_over_sqrt_pi = 2 * std::numbers::inv_sqrtpi;
constexpr double ln2 = std::numbers::ln2, log2_e = std::numbers::log2e;
constexpr double log10_e = std::numbers::log10e;

const OpDef& neg_def = define({
    .name = "neg",
    .kind = OpKind::elementwise,
    .gradient = [](const Tensor&, const Tensor& dy) -> Gradients { return {-dy}; },
    .scalar = ScalarOp::neg,
    .expression = [](Exprs x) -> Expr { return -x[0]; },
    .representable = true,
    .exact = Exact::always,
    .oracle = [](double x, double, double) { return -x; },
    .integer_oracle = [](int64_t a, int64_t, int64_t) { return times(a, -1); },
    .test = {.integers = true},
});

const OpDef& abs_def = define({
    .name = "abs",
    .kind = OpKind::elementwise,
    .gradient = [](const Tensor& y, const Tensor& dy) -> Gradients {
      const Tensor& x = y->inputs[0];
      return {dy * sign(x)};
    },
    .expression = [](Exprs x) -> Expr { return abs(x[0]); },
    .representable = true,
    .exact = Exact::always,
    .oracle = [](double x, double, double) { return std::fabs(x); },
    .integer_oracle = [](int64_t a, int64_t, int64_t) { return a < 0 ? times(a, -1) : a; },
    .test = {.integers = true},
});

Expr sign_code(Exprs x) {
  const Expr zero = constant_like(x[0], 0), minus_one = constant_like(x[0], -1);
  const Expr negative = has_sign(x[0].type()) ? select(x[0] < 0.0, minus_one, zero) : zero;
  return select(x[0] > 0.0, constant_like(x[0], 1), negative);
}
const OpDef& sign_def = define({
    .name = "sign",
    .kind = OpKind::elementwise,
    .expression = sign_code,
    .representable = true,
    .exact = Exact::always,
    .oracle = [](double x, double, double) { return static_cast<double>((x > 0) - (x < 0)); },
    .test = {.integers = true, .no_gradient = flat},
});

const OpDef& exp_def = define({
    .name = "exp",
    .kind = OpKind::elementwise,
    .gradient = [](const Tensor& y, const Tensor& dy) -> Gradients { return {dy * y}; },
    .scalar = ScalarOp::exp,
    .function = std::exp,
});

const OpDef& exp2_def = define({
    .name = "exp2",
    .kind = OpKind::elementwise,
    .gradient = [](const Tensor& y, const Tensor& dy) -> Gradients { return {dy * y * ln2}; },
    .function = std::exp2,
});

const OpDef& expm1_def = define({
    .name = "expm1",
    .kind = OpKind::elementwise,
    .gradient = [](const Tensor& y, const Tensor& dy) -> Gradients { return {dy * (y + 1)}; },
    .function = std::expm1,
});

const OpDef& log_def = define({
    .name = "log",
    .kind = OpKind::elementwise,
    .gradient = [](const Tensor& y, const Tensor& dy) -> Gradients {
      const Tensor& x = y->inputs[0];
      return {dy / x};
    },
    .function = std::log,
    .test = {.low = 0.1, .high = 4},
});

const OpDef& log2_def = define({
    .name = "log2",
    .kind = OpKind::elementwise,
    .gradient = [](const Tensor& y, const Tensor& dy) -> Gradients {
      const Tensor& x = y->inputs[0];
      return {dy * log2_e / x};
    },
    .function = std::log2,
    .test = {.low = 0.1, .high = 4},
});

const OpDef& log10_def = define({
    .name = "log10",
    .kind = OpKind::elementwise,
    .gradient = [](const Tensor& y, const Tensor& dy) -> Gradients {
      const Tensor& x = y->inputs[0];
      return {dy * log10_e / x};
    },
    .function = std::log10,
    .test = {.low = 0.1, .high = 4},
});

const OpDef& log1p_def = define({
    .name = "log1p",
    .kind = OpKind::elementwise,
    .gradient = [](const Tensor& y, const Tensor& dy) -> Gradients {
      const Tensor& x = y->inputs[0];
      return {dy / (x + 1)};
    },
    .function = std::log1p,
    .test = {.low = -0.9, .high = 4},
});

const OpDef& sqrt_def = define({
    .name = "sqrt",
    .kind = OpKind::elementwise,
    .gradient = [](const Tensor& y, const Tensor& dy) -> Gradients { return {dy * 0.5 / y}; },
    .function = std::sqrt,
    .exact = Exact::always,
    .test = {.low = 0.1, .high = 4},
});

const OpDef& rsqrt_def = define({
    .name = "rsqrt",
    .kind = OpKind::elementwise,
    .gradient = [](const Tensor& y, const Tensor& dy) -> Gradients {
      const Tensor& x = y->inputs[0];
      return {dy * -0.5 * y / x};
    },
    .expression = [](Exprs x) -> Expr { return convert(1 / sqrt(to_float(x[0])), x[0].type()); },
    .oracle = [](double x, double, double) { return 1 / std::sqrt(x); },
    .test = {.low = 0.1, .high = 4},
});

const OpDef& cbrt_def = define({
    .name = "cbrt",
    .kind = OpKind::elementwise,
    .doc = "the cube root, of negative numbers too",
    .gradient = [](const Tensor& y, const Tensor& dy) -> Gradients { return {dy / (3 * y * y)}; },
    .function = std::cbrt,
    .test = {.low = 0.1, .high = 4},
});

const OpDef& sin_def = define({
    .name = "sin",
    .kind = OpKind::elementwise,
    .gradient = [](const Tensor& y, const Tensor& dy) -> Gradients {
      const Tensor& x = y->inputs[0];
      return {dy * cos(x)};
    },
    .function = std::sin,
});

const OpDef& cos_def = define({
    .name = "cos",
    .kind = OpKind::elementwise,
    .gradient = [](const Tensor& y, const Tensor& dy) -> Gradients {
      const Tensor& x = y->inputs[0];
      return {-(dy * sin(x))};
    },
    .function = std::cos,
});

const OpDef& tan_def = define({
    .name = "tan",
    .kind = OpKind::elementwise,
    .gradient = [](const Tensor& y, const Tensor& dy) -> Gradients { return {dy * (y * y + 1)}; },
    .function = std::tan,
    .test = {.low = -1, .high = 1},
});

const OpDef& asin_def = define({
    .name = "asin",
    .kind = OpKind::elementwise,
    .gradient = [](const Tensor& y, const Tensor& dy) -> Gradients {
      const Tensor& x = y->inputs[0];
      return {dy * rsqrt(1 - x * x)};
    },
    .function = std::asin,
    .test = {.low = -0.9, .high = 0.9},
});

const OpDef& acos_def = define({
    .name = "acos",
    .kind = OpKind::elementwise,
    .gradient = [](const Tensor& y, const Tensor& dy) -> Gradients {
      const Tensor& x = y->inputs[0];
      return {-(dy * rsqrt(1 - x * x))};
    },
    .function = std::acos,
    .test = {.low = -0.9, .high = 0.9},
});

const OpDef& atan_def = define({
    .name = "atan",
    .kind = OpKind::elementwise,
    .gradient = [](const Tensor& y, const Tensor& dy) -> Gradients {
      const Tensor& x = y->inputs[0];
      return {dy / (x * x + 1)};
    },
    .function = std::atan,
});

const OpDef& sinh_def = define({
    .name = "sinh",
    .kind = OpKind::elementwise,
    .gradient = [](const Tensor& y, const Tensor& dy) -> Gradients {
      const Tensor& x = y->inputs[0];
      return {dy * cosh(x)};
    },
    .function = std::sinh,
});

const OpDef& cosh_def = define({
    .name = "cosh",
    .kind = OpKind::elementwise,
    .gradient = [](const Tensor& y, const Tensor& dy) -> Gradients {
      const Tensor& x = y->inputs[0];
      return {dy * sinh(x)};
    },
    .function = std::cosh,
});

const OpDef& tanh_def = define({
    .name = "tanh",
    .kind = OpKind::elementwise,
    .gradient = [](const Tensor& y, const Tensor& dy) -> Gradients { return {dy * (1 - y * y)}; },
    .function = std::tanh,
});

const OpDef& asinh_def = define({
    .name = "asinh",
    .kind = OpKind::elementwise,
    .gradient = [](const Tensor& y, const Tensor& dy) -> Gradients {
      const Tensor& x = y->inputs[0];
      return {dy * rsqrt(x * x + 1)};
    },
    .function = std::asinh,
});

const OpDef& acosh_def = define({
    .name = "acosh",
    .kind = OpKind::elementwise,
    .gradient = [](const Tensor& y, const Tensor& dy) -> Gradients {
      const Tensor& x = y->inputs[0];
      return {dy * rsqrt((x - 1) * (x + 1))};
    },
    .function = std::acosh,
    .test = {.low = 1.2, .high = 4},
});

const OpDef& atanh_def = define({
    .name = "atanh",
    .kind = OpKind::elementwise,
    .gradient = [](const Tensor& y, const Tensor& dy) -> Gradients {
      const Tensor& x = y->inputs[0];
      return {dy / ((1 - x) * (1 + x))};
    },
    .function = std::atanh,
    .test = {.low = -0.9, .high = 0.9},
});

const OpDef& erf_def = define({
    .name = "erf",
    .kind = OpKind::elementwise,
    .gradient = [](const Tensor& y, const Tensor& dy) -> Gradients {
      const Tensor& x = y->inputs[0];
      return {dy * exp(-(x * x)) * two_over_sqrt_pi};
    },
    .function = std::erf,
});

const OpDef& erfc_def = define({
    .name = "erfc",
    .kind = OpKind::elementwise,
    .gradient = [](const Tensor& y, const Tensor& dy) -> Gradients {
      const Tensor& x = y->inputs[0];
      return {dy * exp(-(x * x)) * -two_over_sqrt_pi};
    },
    .function = std::erfc,
});

const OpDef& floor_def = define({
    .name = "floor",
    .kind = OpKind::elementwise,
    .function = std::floor,
    .exact = Exact::always,
    .test = {.no_gradient = flat},
});

const OpDef& ceil_def = define({
    .name = "ceil",
    .kind = OpKind::elementwise,
    .function = std::ceil,
    .exact = Exact::always,
    .test = {.no_gradient = flat},
});

const OpDef& round_def = define({
    .name = "round",
    .kind = OpKind::elementwise,
    .expression = [](Exprs x) -> Expr { return is_float(x[0].type()) ? rint(x[0]) : x[0]; },
    .exact = Exact::always,
    .oracle = [](double x, double, double) { return std::nearbyint(x); },
    .test = {.no_gradient = flat},
});

const OpDef& trunc_def = define({
    .name = "trunc",
    .kind = OpKind::elementwise,
    .function = std::trunc,
    .exact = Exact::always,
    .test = {.no_gradient = flat},
});

const OpDef& reciprocal_def = define({
    .name = "reciprocal",
    .kind = OpKind::elementwise,
    .gradient = [](const Tensor& y, const Tensor& dy) -> Gradients { return {-(dy * y * y)}; },
    .expression = [](Exprs x) -> Expr { return 1 / x[0]; },
    .exact = Exact::always,
    .oracle = [](double x, double, double) { return 1 / x; },
    .test = {.low = 0.3, .high = 3},
});

const OpDef& logical_not_def = define({
    .name = "logical_not",
    .kind = OpKind::elementwise,
    .scalar = ScalarOp::logical_not,
    .expression = [](Exprs x) -> Expr { return !truth(x[0]); },
    .exact = Exact::always,
    .predicate = true,
    .oracle = [](double x, double, double) -> double { return x == 0; },
    .test =
        {.low = -1, .high = 1, .integers = true, .booleans = true, .no_gradient = "yields bool"},
});

const OpDef& is_nan_def = define({
    .name = "is_nan",
    .kind = OpKind::elementwise,
    .expression = [](Exprs x) -> Expr { return is_nan(x[0]); },
    .exact = Exact::always,
    .predicate = true,
    .oracle = [](double x, double, double) -> double { return std::isnan(x); },
    .test = {.no_gradient = "yields bool"},
});

const OpDef& is_finite_def = define({
    .name = "is_finite",
    .kind = OpKind::elementwise,
    .expression = [](Exprs x) -> Expr { return is_finite(x[0]); },
    .exact = Exact::always,
    .predicate = true,
    .oracle = [](double x, double, double) -> double { return std::isfinite(x); },
    .test = {.no_gradient = "yields bool"},
});

// A cast from float to integer truncates and saturates; a cast to bool is x != 0.
const OpDef& cast_def = define({
    .name = "cast",
    .kind = OpKind::elementwise,
    .doc = "conversion to attr dtype",
    .infer = [](std::span<const Tensor> inputs, const Attrs& attrs) -> Type {
      const DType from = inputs[0].dtype(), to = static_cast<DType>(attrs.integer("dtype"));
      for (const auto& [packed, other] : {std::pair(from, to), std::pair(to, from)})
        WEFT_CHECK(info(packed).numbers == 1 || other == packed || other == DType::u8,
                   "[cast] an element of {} holds {} numbers. Got a cast from {} to {}. Hint: "
                   "unpack(x), pack(x) or dequantize(x, scale).",
                   name(packed), info(packed).numbers, name(from), name(to));
      return {to, inputs[0].shape()};
    },
    .gradient = [](const Tensor& y, const Tensor& dy) -> Gradients {
      const Tensor& x = y->inputs[0];
      return {is_float(x.dtype()) && is_float(dy.dtype()) ? cast(dy, x.dtype()) : Tensor()};
    },
    .scalar = ScalarOp::cast,
    .expression = [](Exprs x) -> Expr { return x[0]; },
    .exact = Exact::always,
    .oracle = [](double x, double, double) { return x; },
    .integer_oracle = [](int64_t a, int64_t, int64_t) { return a; },
    .test = {.integers = true, .booleans = true},
});

// identity copies a value that needs another location or layout.
const OpDef& identity_def = define({
    .name = "identity",
    .kind = OpKind::elementwise,
    .gradient = [](const Tensor&, const Tensor& dy) -> Gradients { return {dy}; },
    .scalar = ScalarOp::identity,
    .expression = [](Exprs x) -> Expr { return x[0]; },
    .representable = true,
    .exact = Exact::always,
    .oracle = [](double x, double, double) { return x; },
    .integer_oracle = [](int64_t a, int64_t, int64_t) { return a; },
    .test = {.integers = true, .booleans = true},
});

const OpDef& stop_gradient_def = define({
    .name = "stop_gradient",
    .kind = OpKind::elementwise,
    .scalar = ScalarOp::identity,
    .expression = [](Exprs x) -> Expr { return x[0]; },
    .representable = true,
    .exact = Exact::always,
    .oracle = [](double x, double, double) { return x; },
    .integer_oracle = [](int64_t a, int64_t, int64_t) { return a; },
    .test = {.integers = true, .booleans = true, .no_gradient = "its purpose"},
});
}  // namespace

Tensor neg(Arg x) { return apply_unary(neg_def, x); }
Tensor abs(Arg x) { return apply_unary(abs_def, x); }
Tensor sign(Arg x) { return apply_unary(sign_def, x); }
Tensor exp(Arg x) { return apply_unary(exp_def, x); }
Tensor exp2(Arg x) { return apply_unary(exp2_def, x); }
Tensor expm1(Arg x) { return apply_unary(expm1_def, x); }
Tensor log(Arg x) { return apply_unary(log_def, x); }
Tensor log2(Arg x) { return apply_unary(log2_def, x); }
Tensor log10(Arg x) { return apply_unary(log10_def, x); }
Tensor log1p(Arg x) { return apply_unary(log1p_def, x); }
Tensor sqrt(Arg x) { return apply_unary(sqrt_def, x); }
Tensor rsqrt(Arg x) { return apply_unary(rsqrt_def, x); }
Tensor cbrt(Arg x) { return apply_unary(cbrt_def, x); }
Tensor sin(Arg x) { return apply_unary(sin_def, x); }
Tensor cos(Arg x) { return apply_unary(cos_def, x); }
Tensor tan(Arg x) { return apply_unary(tan_def, x); }
Tensor asin(Arg x) { return apply_unary(asin_def, x); }
Tensor acos(Arg x) { return apply_unary(acos_def, x); }
Tensor atan(Arg x) { return apply_unary(atan_def, x); }
Tensor sinh(Arg x) { return apply_unary(sinh_def, x); }
Tensor cosh(Arg x) { return apply_unary(cosh_def, x); }
Tensor tanh(Arg x) { return apply_unary(tanh_def, x); }
Tensor asinh(Arg x) { return apply_unary(asinh_def, x); }
Tensor acosh(Arg x) { return apply_unary(acosh_def, x); }
Tensor atanh(Arg x) { return apply_unary(atanh_def, x); }
Tensor erf(Arg x) { return apply_unary(erf_def, x); }
Tensor erfc(Arg x) { return apply_unary(erfc_def, x); }
Tensor floor(Arg x) { return apply_unary(floor_def, x); }
Tensor ceil(Arg x) { return apply_unary(ceil_def, x); }
Tensor round(Arg x) { return apply_unary(round_def, x); }
Tensor trunc(Arg x) { return apply_unary(trunc_def, x); }
Tensor reciprocal(Arg x) { return apply_unary(reciprocal_def, x); }
Tensor logical_not(Arg x) { return apply_unary(logical_not_def, x); }
Tensor is_nan(Arg x) { return apply_unary(is_nan_def, x); }
Tensor is_finite(Arg x) { return apply_unary(is_finite_def, x); }
Tensor stop_gradient(Arg x) { return apply_unary(stop_gradient_def, x); }

Tensor square(Arg x) {
  CallSite here(x.where);
  return x.value * x.value;
}
Tensor cast(Arg x, DType dtype) {
  CallSite here(x.where);
  Tensor value = to_value(x, {});
  if (value.dtype() == dtype) return value;
  return make_node(cast_def, {value}, {{"dtype", static_cast<int64_t>(dtype)}});
}
}  // namespace weft
