#include "weft/codegen/scalar_ops.h"

#include <limits>

#include "weft/base/error.h"
#include "weft/codegen/float_formats.h"
#include "weft/codegen/vector_math.h"

namespace weft::loop {
namespace {
// Divides integers, rounding to minus infinity.
Expr integer_floor_divide(Expr a, Expr b) {
  Expr quotient = a / b;
  Expr inexact = quotient * b != a;
  Expr opposite = (a < 0.0) != (b < 0.0);
  return select((b != 0.0) & inexact & opposite, quotient - 1, quotient);
}
// Computes floor_divide without f64: the sign of the remainder shows whether the quotient was
// rounded across an integer. Every f32 quotient from 2^23 on is an integer.
Expr single_floor_divide(Expr a, Expr b) {
  const Expr quotient = floor(a / b), left = fma(-quotient, b, a);
  const Expr less = ((left < 0.0) & (b > 0.0)) | ((left > 0.0) & (b < 0.0));
  const Expr more = abs(left) >= abs(b);
  const Expr exact = select(less, quotient - 1, select(more, quotient + 1, quotient));
  return select(abs(quotient) < 0x1p23, exact, quotient);
}
// f32 by way of f64, where the quotient cannot round up to a whole number.
Expr floor_divide(Expr a, Expr b) {
  if (!is_float(a.type())) return integer_floor_divide(a, b);
  if (is_single(a)) return single_floor_divide(a, b);
  return convert(floor(convert(a, DType::f64) / convert(b, DType::f64)), a.type());
}
Expr with_sign_of(Expr b, Expr rest) {
  return select((rest != 0.0) & ((rest < 0.0) != (b < 0.0)), rest + b, rest);
}
Expr remainder(Expr a, Expr b) {
  if (!is_float(a.type())) return with_sign_of(b, a.code->op(Op::remainder, a.type(), a, b));
  if (is_single(a)) return with_sign_of(b, call("fmod", a, b));
  Expr x = convert(a, DType::f64), y = convert(b, DType::f64), quotient = floor(x / y);
  Expr rest = select(quotient == 0.0, x, x - quotient * y);  // y may be infinite
  return convert(with_sign_of(y, rest), a.type());
}

Expr sign(Expr x) {
  Expr one = constant_like(x, 1), zero = constant_like(x, 0);
  Expr negative = x.type() == DType::u8 ? zero : select(x < 0.0, constant_like(x, -1), zero);
  return select(x > 0.0, one, negative);
}
Expr is_finite(Expr x) {
  if (!is_float(x.type())) return constant(*x.code, DType::boolean, 1);
  return abs(x) < std::numeric_limits<double>::infinity();
}

// Adds 16 random bits below the precision of bf16 and truncates.
Expr round_stochastic(Expr x, Expr noise) {
  Expr bits = bitcast(x, DType::i32) + convert(noise * 0x1p16, DType::i32);
  Expr rounded = bitcast(bits & ~int64_t{0xffff}, DType::f32);
  return select(is_finite(x), rounded, round_to(x, DType::bf16));
}

// Applies a function of floats, to integers by way of f64.
template <class F>
Expr through_float(F function, Expr x) {
  if (is_float(x.type())) return function(x);
  return convert(function(convert(x, DType::f64)), x.type());
}

Expr truth(Expr x) { return convert(x, DType::boolean); }

Expr unary(ScalarOp op, Expr x) {
  switch (op) {
    case ScalarOp::identity:
      return x;
    case ScalarOp::neg:
      return -x;
    case ScalarOp::abs:
      return abs(x);
    case ScalarOp::sign:
      return sign(x);
    case ScalarOp::logical_not:
      return !truth(x);
    case ScalarOp::is_nan:
      return is_nan(x);
    case ScalarOp::is_finite:
      return is_finite(x);
    case ScalarOp::rsqrt:
      return through_float([](Expr v) { return 1 / sqrt(v); }, x);
    case ScalarOp::round:
      return is_float(x.type()) ? rint(x) : x;
    case ScalarOp::reciprocal:
      return 1 / x;
    default:
      break;
  }
  WEFT_ASSERT(false, "scalar op {} does not take one operand", static_cast<int>(op));
}

Expr binary(ScalarOp op, Expr a, Expr b) {
  switch (op) {
    case ScalarOp::add:
      return a + b;
    case ScalarOp::sub:
      return a - b;
    case ScalarOp::mul:
      return a * b;
    case ScalarOp::div:
      return a / b;
    case ScalarOp::pow: {
      if (is_float(a.type())) return pow(a, b);
      // rint removes the error of a device's pow; a negative exponent gives a fraction, which
      // truncates.
      const Expr power = pow(convert(a, DType::f64), convert(b, DType::f64));
      return convert(select(b < 0, power, rint(power)), a.type());
    }
    case ScalarOp::maximum:
      return maximum(a, b);
    case ScalarOp::minimum:
      return minimum(a, b);
    case ScalarOp::remainder:
      return remainder(a, b);
    case ScalarOp::floor_divide:
      return floor_divide(a, b);
    case ScalarOp::atan2:
      return atan2(a, b);
    case ScalarOp::round_stochastic:
      return round_stochastic(a, b);
    case ScalarOp::equal:
      return a == b;
    case ScalarOp::not_equal:
      return a != b;
    case ScalarOp::less:
      return a < b;
    case ScalarOp::less_equal:
      return a <= b;
    case ScalarOp::greater:
      return a > b;
    case ScalarOp::greater_equal:
      return a >= b;
    case ScalarOp::logical_and:
      return truth(a) & truth(b);
    case ScalarOp::logical_or:
      return truth(a) | truth(b);
    case ScalarOp::logical_xor:
      return truth(a) ^ truth(b);
    default:
      break;
  }
  WEFT_ASSERT(false, "scalar op {} does not take two operands", static_cast<int>(op));
}
}  // namespace

DType storage_type(DType dtype) { return info(dtype).stored_only ? DType::u8 : dtype; }
DType loaded_type(DType dtype) { return info(storage_type(dtype)).computed; }
// Elements that hold several numbers are only moved, as the bytes that they are.
bool has_format(DType dtype) { return info(dtype).stored_only && info(dtype).numbers == 1; }
Expr from_memory(Expr element, DType dtype) {
  return has_format(dtype) ? number_of_bits(element, info(dtype).format) : element;
}
Expr to_memory(Expr value, DType dtype) {
  return has_format(dtype) ? bits_of_number(value, info(dtype).format) : value;
}

Expr round_to(Expr x, DType dtype) {
  if (info(dtype).numbers > 1 || info(dtype).computed == dtype)
    return convert(x, info(dtype).computed);
  // f32 holds every integer of up to 16 bits.
  if (!is_float(x.type())) x = size_of(x.type()) <= 2 ? convert(x, DType::f32) : to_odd_single(x);
  if (info(dtype).stored_only) return from_memory(to_memory(x, dtype), dtype);
  return x.code->op(dtype == DType::f16 ? Op::round_f16 : Op::round_bf16, DType::f32, x);
}

Expr scalar_op(const OpDef& def, std::span<const Expr> args, DType from, DType to) {
  if (def.function != nullptr) {
    const auto of = [&def](Expr x) { return function(def.name, x); };
    return round_to(through_float(of, args[0]), to);
  }
  const ScalarOp op = def.scalar;
  if (op == ScalarOp::cast) return from == to ? args[0] : round_to(args[0], to);
  if (op == ScalarOp::select) return select(args[0], args[1], args[2]);
  Expr value = args.size() == 1 ? unary(op, args[0]) : binary(op, args[0], args[1]);
  bool exact = op == ScalarOp::identity || op == ScalarOp::neg || op == ScalarOp::abs ||
               op == ScalarOp::maximum || op == ScalarOp::minimum || op == ScalarOp::sign ||
               op == ScalarOp::round_stochastic;
  return exact ? value : round_to(value, to);
}

Expr constant(Code& code, DType dtype, double value) {
  if (dtype == DType::boolean) return code.integer(dtype, value != 0 ? 1 : 0);
  if (info(dtype).numbers > 1 || info(dtype).computed == dtype)
    return code.number(info(dtype).computed, value);
  const FloatFormat& format = info(dtype).format;
  return code.number(info(dtype).computed, from_bits(to_bits(value, format), format));
}

}  // namespace weft::loop
