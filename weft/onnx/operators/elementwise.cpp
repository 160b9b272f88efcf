// Maps ONNX's elementwise operators. This is one file because it is a list: a function, or a row,
// for each.
#include <cmath>
#include <limits>
#include <numbers>

#include "weft/onnx/file/types.h"
#include "weft/onnx/operators/operators.h"
#include "weft/onnx/operators/unrounded.h"
#include "weft/tensor/wide.h"

namespace weft::onnx {
namespace {
using Tensors = std::vector<Tensor>;

template <Tensor (*function)(Arg)>
Tensors unary(const Call& call) {
  return {function(call[0])};
}
template <Tensor (*function)(Arg, Arg)>
Tensors binary(const Call& call) {
  return {function(call[0], call[1])};
}
// Applies a function of two to any number of operands, from left to right.
template <Tensor (*function)(Arg, Arg)>
Tensors variadic(const Call& call) {
  const Tensors all = call.all();
  Tensor result = all[0];
  for (size_t i = 1; i < all.size(); ++i) result = function(result, all[i]);
  return {result};
}

Tensor like(double number, const Tensor& other) { return scalar(number, other.dtype()); }

// Returns the sum of the operands in float32 at least.
Tensor wide_sum(const Call& call) {
  Tensor total = widen(call[0]);
  for (size_t i = 1; i < call.size(); ++i) total = total + widen(call[i]);
  return total;
}
Tensors sum_of(const Call& call) { return {narrow_to(wide_sum(call), call[0].dtype())}; }
Tensors mean_of(const Call& call) {
  return {narrow_to(wide_sum(call) / static_cast<double>(call.size()), call[0].dtype())};
}

// Integers divide towards zero, as in C.
Tensor quotient(Arg a, Arg b) {
  if (is_float(a.value.dtype())) return div(a, b);
  Tensor floored = floor_divide(a, b);
  if (!has_sign(a.value.dtype())) return floored;
  const Tensor rest = remainder(a, b);
  const Tensor opposite = logical_xor(less(a, 0), less(b, 0));
  return select(logical_and(not_equal(rest, 0), opposite), floored + 1, floored);
}

// With attribute fmod the result has the sign of the dividend, without it that of the divisor.
Tensors mod(const Call& call) {
  const Tensor &a = call[0], &b = call[1];
  if (!call.flag("fmod")) return {remainder(a, b)};
  if (is_float(a.dtype())) {
    const Tensor size = remainder(abs(a), abs(b));
    return {select(less(a, 0), -size, size)};
  }
  const Tensor rest = remainder(a, b);
  const Tensor differs = logical_xor(less(rest, 0), less(a, 0));
  return {select(logical_and(not_equal(rest, 0), differs), rest - b, rest)};
}

Tensors power(const Call& call) {
  const Tensor &base = call[0], &exponent = call[1];
  // A known exponent becomes a scalar, because pow() computes small whole powers as products.
  if (is_float(base.dtype()) && exponent.elements() == 1 && exponent.rank() <= base.rank() &&
      call.is_constant(1))
    return {pow(base, call.number_at(1))};
  if (base.dtype() == exponent.dtype()) return {pow(base, exponent)};
  if (is_float(base.dtype())) return {pow(base, cast(exponent, base.dtype()))};
  if (!is_float(exponent.dtype())) return {pow(base, cast(exponent, base.dtype()))};
  return {cast(pow(cast(base, exponent.dtype()), exponent), base.dtype())};
}

// At a bound the whole gradient passes, as through clamp().
Tensors clip(const Call& call) {
  Tensor x = call[0];
  const bool in_inputs = call.opset() >= 11;
  const bool has_low = in_inputs ? call.has(1) : call.has("min");
  const bool has_high = in_inputs ? call.has(2) : call.has("max");
  const auto are_known = [&] { return !in_inputs || (call.is_constant(1) && call.is_constant(2)); };
  if (has_low && has_high && is_float(x.dtype()) && are_known()) {
    const double low = in_inputs ? call.number_at(1) : call.number("min");
    const double high = in_inputs ? call.number_at(2) : call.number("max");
    if (low <= high) return {clamp(x, low, high)};
  }
  if (has_low) {
    const Tensor low = in_inputs ? call[1] : like(call.number("min"), x);
    x = select(less(x, low), low, x);
  }
  if (has_high) {
    const Tensor high = in_inputs ? call[2] : like(call.number("max"), x);
    x = select(greater(x, high), high, x);
  }
  return {x};
}

Tensor cast_to(const Call& call, const Tensor& x, DType to) {
  if (!info(to).stored_only || !is_float(x.dtype())) return cast(x, to);
  if (!call.flag("saturate", true)) return cast_without_saturation(x, to);
  const double limit = to == DType::f8_e4m3 ? 448 : 57344;
  return cast(clamp(info(x.dtype()).stored_only ? cast(x, DType::f32) : x, -limit, limit), to);
}

Tensors cast_operator(const Call& call) {
  const int64_t to = call.integer("to");
  const auto type = element_type(to);
  if (!type) call.refuse("it casts to {}, which weft has no type for", onnx_type_name(to));
  if (type->bits > 0) return {call.with_bits(wrapped_to(call[0], *type), type->bits)};
  const bool widens = type->dtype == DType::f32 || type->dtype == DType::f64;
  return {cast_to(call, widens ? before_rounding(call[0]) : call[0], type->dtype)};
}
Tensors cast_like(const Call& call) {
  const ElementType type{call[1].dtype(), call.bits(1)};
  if (type.bits > 0) return {call.with_bits(wrapped_to(call[0], type), type.bits)};
  return {cast_to(call, call[0], type.dtype)};
}

Tensors is_infinite(const Call& call) {
  const Tensor& x = call[0];
  const Tensor wide = info(x.dtype()).stored_only ? cast(x, DType::f32) : x;
  const bool low = call.flag("detect_negative", true), high = call.flag("detect_positive", true);
  const Tensor above = equal(wide, like(infinity, wide)),
               below = equal(wide, like(-infinity, wide));
  if (high && low) return {logical_or(above, below)};
  if (high) return {above};
  if (low) return {below};
  return {logical_and(above, below)};  // false everywhere
}

// Slopes have the shape of the operand's channels, or broadcast to it.
Tensors prelu(const Call& call) {
  const Tensor& x = call[0];
  return {select(less(x, 0), x * call[1], x)};
}

Tensors gelu_operator(const Call& call) {
  if (call.text("approximate", "none") == "tanh") return {gelu_tanh(call[0])};
  return {gelu(call[0])};
}

Tensors shrink(const Call& call) {
  const Tensor& x = call[0];
  const double bias = call.number("bias", 0.0), limit = call.number("lambd", 0.5);
  const Tensor shrunk = select(less(x, -limit), cast(x + bias, x.dtype()),
                               select(greater(x, limit), cast(x - bias, x.dtype()), zeros_like(x)));
  return {shrunk};
}

Tensors shift(const Call& call) {
  const std::string direction = call.text("direction");
  if (direction == "LEFT") return {shift_left(call[0], call[1])};
  if (direction == "RIGHT") return {shift_right(call[0], call[1])};
  call.refuse("attribute 'direction' is LEFT or RIGHT. Got '{}'", direction);
}

Tensors bit_cast(const Call& call) {
  const int64_t to = call.integer("to");
  const auto type = element_type(to);
  if (!type || type->bits > 0)
    call.refuse("it casts to {}, which weft has no type for", onnx_type_name(to));
  return {bitcast(call[0], type->dtype)};
}

// Returns x times the sigmoid of alpha x.
Tensor swish(const Call& call, const Tensor& x) {
  const double alpha = call.number("alpha", 1.0);
  return alpha == 1 ? silu(x) : x * sigmoid(x * alpha);
}

const Operator elementwise_rows[] = {
    {"Abs", "1 -> 1: consumed_inputs", unary<weft::abs>},
    {"Acos", "1 -> 1", unary<weft::acos>},
    {"Acosh", "@9 1 -> 1", unary<weft::acosh>},
    {"Add", "2 -> 1: consumed_inputs", binary<add>},
    {"And", "2 -> 1", binary<logical_and>},
    {"Asin", "1 -> 1", unary<weft::asin>},
    {"Asinh", "@9 1 -> 1", unary<weft::asinh>},
    {"Atan", "1 -> 1", unary<weft::atan>},
    {"Atanh", "@9 1 -> 1", unary<weft::atanh>},
    {"BitCast", "@26 1 -> 1: to", bit_cast},
    {"BitShift", "@11 2 -> 1: direction", shift},
    {"BitwiseAnd", "@18 2 -> 1", binary<bitwise_and>},
    {"BitwiseNot", "@18 1 -> 1", unary<bitwise_not>},
    {"BitwiseOr", "@18 2 -> 1", binary<bitwise_or>},
    {"BitwiseXor", "@18 2 -> 1", binary<bitwise_xor>},
    {"Cast", "1 -> 1: round_mode@24 saturate@19 to", cast_operator},
    {"CastLike", "@15 2 -> 1: round_mode@24 saturate@19", cast_like},
    {"Ceil", "1 -> 1: consumed_inputs", unary<weft::ceil>},
    {"Celu", "@12 1 -> 1: alpha",
     [](const Call& call) -> Tensors { return {celu(call[0], call.number("alpha", 1.0))}; }},
    {"Clip", "1 3@11 -> 1: consumed_inputs max@-10 min@-10", clip},
    {"Cos", "1 -> 1", unary<weft::cos>},
    {"Cosh", "@9 1 -> 1", unary<weft::cosh>},
    {"Div", "2 -> 1: consumed_inputs", binary<quotient>},
    {"Elu", "1 -> 1: alpha consumed_inputs",
     [](const Call& call) -> Tensors { return {elu(call[0], call.number("alpha", 1.0))}; }},
    {"Equal", "2 -> 1", binary<equal>},
    {"Erf", "@9 1 -> 1", unary<weft::erf>},
    {"Exp", "1 -> 1: consumed_inputs", unary<weft::exp>},
    {"Floor", "1 -> 1: consumed_inputs", unary<weft::floor>},
    {"Gelu", "@20 1 -> 1: approximate", gelu_operator},
    {"Greater", "2 -> 1", binary<greater>},
    {"GreaterOrEqual", "@12 2 -> 1", binary<greater_equal>},
    {"HardSigmoid", "1 -> 1: alpha beta consumed_inputs",
     [](const Call& call) -> Tensors {
       return {hardtanh(call[0] * call.number("alpha", 0.2) + call.number("beta", 0.5), 0, 1)};
     }},
    {"HardSwish", "@14 1 -> 1", [](const Call& call) -> Tensors { return {hardswish(call[0])}; }},
    {"Identity", "1 -> 1", [](const Call& call) -> Tensors { return {call[0]}; }},
    {"IsInf", "@10 1 -> 1: detect_negative detect_positive", is_infinite},
    {"IsNaN", "@9 1 -> 1",
     [](const Call& call) -> Tensors {
       return {is_nan(info(call[0].dtype()).stored_only ? cast(call[0], DType::f32) : call[0])};
     }},
    {"LeakyRelu", "1 -> 1: alpha consumed_inputs",
     [](const Call& call) -> Tensors { return {leaky_relu(call[0], call.number("alpha", 0.01))}; }},
    {"Less", "2 -> 1", binary<less>},
    {"LessOrEqual", "@12 2 -> 1", binary<less_equal>},
    {"Log", "1 -> 1: consumed_inputs", unary<weft::log>},
    {"Max", "* -> 1: consumed_inputs", variadic<maximum>},
    {"Mean", "* -> 1: consumed_inputs", mean_of},
    {"Min", "* -> 1: consumed_inputs", variadic<minimum>},
    {"Mish", "@18 1 -> 1", unary<mish>},
    {"Mod", "@10 2 -> 1: fmod", mod},
    {"Mul", "2 -> 1: consumed_inputs", binary<mul>},
    {"Neg", "1 -> 1: consumed_inputs", unary<neg>},
    {"Not", "1 -> 1", unary<logical_not>},
    {"Or", "2 -> 1", binary<logical_or>},
    {"PRelu", "2 -> 1: consumed_inputs", prelu},
    {"Pow", "2 -> 1", power},
    {"Reciprocal", "1 -> 1: consumed_inputs", unary<reciprocal>},
    {"Relu", "1 -> 1: consumed_inputs",
     [](const Call& call) -> Tensors {
       const Tensor& x = call[0];
       return {is_float(x.dtype()) ? relu(x) : maximum(x, zeros_like(x))};
     }},
    {"Round", "@11 1 -> 1", unary<weft::round>},
    {"Selu", "1 -> 1: alpha consumed_inputs gamma",
     [](const Call& call) -> Tensors {
       if (!call.has("alpha") && !call.has("gamma")) return {selu(call[0])};
       const double gamma = call.number("gamma", 1.0507009873554805);
       return {elu(call[0], call.number("alpha", 1.6732632423543772)) * gamma};
     }},
    {"Shrink", "@9 1 -> 1: bias lambd", shrink},
    {"Sigmoid", "1 -> 1: consumed_inputs", unary<sigmoid>},
    {"Sign", "@9 1 -> 1", unary<weft::sign>},
    {"Sin", "1 -> 1", unary<weft::sin>},
    {"Sinh", "@9 1 -> 1", unary<weft::sinh>},
    {"Softplus", "1 -> 1", unary<softplus>},
    {"Softsign", "1 -> 1", unary<softsign>},
    {"Sqrt", "1 -> 1: consumed_inputs", unary<weft::sqrt>},
    {"Sub", "2 -> 1: consumed_inputs", binary<sub>},
    {"Sum", "* -> 1: consumed_inputs", sum_of},
    {"SwiGLU", "@28 2 -> 1: alpha",
     [](const Call& call) -> Tensors { return {swish(call, call[0]) * call[1]}; }},
    {"Swish", "@24 1 -> 1: alpha",
     [](const Call& call) -> Tensors { return {swish(call, call[0])}; }},
    {"Tan", "1 -> 1", unary<weft::tan>},
    {"Tanh", "1 -> 1: consumed_inputs", unary<weft::tanh>},
    {"ThresholdedRelu", "@10 1 -> 1: alpha",
     [](const Call& call) -> Tensors {
       const Tensor& x = call[0];
       return {select(greater(x, call.number("alpha", 1.0)), x, zeros_like(x))};
     }},
    {"Where", "@9 3 -> 1",
     [](const Call& call) -> Tensors { return {select(call[0], call[1], call[2])}; }},
    {"Xor", "2 -> 1", binary<logical_xor>},
};
}  // namespace

std::span<const Operator> elementwise_operators() { return elementwise_rows; }

}  // namespace weft::onnx
