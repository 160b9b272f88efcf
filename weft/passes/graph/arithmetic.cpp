#include <cmath>
#include <limits>

#include "weft/ir/op_def.h"
#include "weft/ops/ops.h"
#include "weft/passes/graph/algebra.h"
#include "weft/passes/graph/fold.h"

namespace weft {
namespace {
bool does(const Value& value, ScalarOp scalar) { return value->op->scalar == scalar; }

Value apply(std::string_view name, const Value& a, const Value& b) {
  return make_node(op(name), {a, b});
}

// Returns whether all elements equal `number`, including the sign of zero.
bool is_constant(const Value& value, double number) {
  auto known = uniform_value(value);
  return known && *known == number && std::signbit(*known) == std::signbit(number);
}

// Returns whether adding the value changes no bit: -0 for floats (-0 + 0 is 0), 0 for integers.
bool is_no_addend(const Value& value) {
  return is_constant(value, is_float(value.dtype()) ? -0.0 : 0.0);
}

Value simplify_add(const Value& a, const Value& b) {
  if (is_no_addend(b)) return a;
  if (is_no_addend(a)) return b;
  if (does(b, ScalarOp::neg)) return apply("sub", a, b->inputs[0]);
  if (does(a, ScalarOp::neg)) return apply("sub", b, a->inputs[0]);
  return {};
}

Value simplify_sub(const Value& a, const Value& b) {
  if (is_constant(b, 0)) return a;
  if (does(b, ScalarOp::neg)) return apply("add", a, b->inputs[0]);
  return {};
}

Value simplify_mul(const Value& a, const Value& b) {
  if (is_constant(b, 1)) return a;
  if (is_constant(a, 1)) return b;
  if (is_float(a.dtype())) return {};  // 0 * x is -0, NaN or 0
  if (is_constant(b, 0)) return b;
  if (is_constant(a, 0)) return a;
  return {};
}

// Replaces x / 2^k by x * 2^-k where both powers are normal numbers.
Value simplify_div(const Value& a, const Value& b) {
  auto divisor = uniform_value(b);
  if (!divisor || !is_float(b.dtype())) return {};
  if (*divisor == 1) return a;
  int exponent = 0;
  bool power = std::fabs(std::frexp(*divisor, &exponent)) == 0.5;
  const int most = -info(b.dtype()).format.least_exponent();
  if (!power || std::abs(exponent - 1) > most) return {};
  return apply("mul", a, filled(b.type(), 1 / *divisor));
}

Value simplify_pow(const Value& a, const Value& b) {
  if (is_constant(b, 1)) return a;
  if (is_constant(b, 2)) return apply("mul", a, a);
  return {};
}

// Returns whether every number of `from` is representable in `to`.
bool widens(DType from, DType to) {
  if (from == to) return true;
  if (info(from).numbers != info(to).numbers) return false;
  if (is_float(from)) {
    const FloatFormat &a = info(from).format, &b = info(to).format;
    return is_float(to) && a.fraction <= b.fraction && a.bias() <= b.bias() &&
           (!a.has_infinities || b.has_infinities);
  }
  if (is_float(to)) return whole_bits(from) <= whole_bits(to);
  bool sign_lost =
      info(from).kind == NumberKind::with_sign && info(to).kind == NumberKind::without_sign;
  return to != DType::boolean && !sign_lost && whole_bits(from) <= whole_bits(to);
}

Value simplify_cast(const Value& value) {
  const Value& x = value->inputs[0];
  if (x.dtype() == value.dtype()) return x;
  if (!does(x, ScalarOp::cast)) return {};
  const Value& source = x->inputs[0];
  if (!widens(source.dtype(), x.dtype())) return {};
  if (source.dtype() == value.dtype()) return source;
  // Float-to-integer casts saturate, but integer casts wrap.
  if (is_float(x.dtype()) && !is_float(source.dtype()) && is_integer(value.dtype())) return {};
  return rebuild(*value.node(), {source});
}

Value simplify_select(const Value& condition, const Value& a, const Value& b) {
  if (auto known = uniform_value(condition)) return *known != 0 ? a : b;
  if (a.node() == b.node()) return a;
  if (does(condition, ScalarOp::logical_not) && condition->inputs[0].dtype() == DType::boolean)
    return make_node(op("select"), {condition->inputs[0], b, a});
  return {};
}

Value simplify_logic(ScalarOp scalar, const Value& a, const Value& b) {
  if (a.dtype() != DType::boolean) return {};
  bool conjunction = scalar == ScalarOp::logical_and;
  for (const auto& [x, other] : {std::pair(a, b), std::pair(b, a)})
    if (auto known = uniform_value(other)) return (*known != 0) == conjunction ? x : other;
  return a.node() == b.node() ? a : Value();
}

Value simplify_unary(const Value& value) {
  const Value& x = value->inputs[0];
  switch (value->op->scalar) {
    case ScalarOp::identity:
      return x;
    case ScalarOp::neg:
      return does(x, ScalarOp::neg) ? x->inputs[0] : Value();
    case ScalarOp::cast:
      return simplify_cast(value);
    case ScalarOp::logical_not:
      if (does(x, ScalarOp::logical_not) && x->inputs[0].dtype() == DType::boolean)
        return x->inputs[0];
      return {};
    default:
      return {};
  }
}

// Replaces f(broadcast(x)) by broadcast(f(x)), to evaluate f once per element of x. Operands must
// be constant or broadcast from the same shape.
Value lift_broadcast(const Value& value, bool wrong) {
  const Value* source = nullptr;
  for (const Value& input : value->inputs) {
    if (is_broadcast(*input.node()) && !uniform_value(input)) {
      const Value& inner = input->inputs[0];
      if (source != nullptr && inner.shape() != source->shape()) return {};
      source = &inner;
    } else if (!uniform_value(input)) {
      return {};
    }
  }
  if (source == nullptr) return {};
  std::vector<Value> inner;
  for (const Value& input : value->inputs) {
    auto number = uniform_value(input);
    inner.push_back(number ? filled({input.dtype(), source->shape()}, *number + (wrong ? 1 : 0))
                           : input->inputs[0]);
  }
  return broadcast_to(rebuild(*value.node(), std::move(inner)), value.shape());
}
}  // namespace

Value simplify_arithmetic(const Value& value, bool wrong) {
  if (value->op->kind != OpKind::elementwise) return {};
  const std::vector<Value>& in = value->inputs;
  Value simpler;
  switch (value->op->scalar) {
    case ScalarOp::add:
      simpler = simplify_add(in[0], in[1]);
      break;
    case ScalarOp::sub:
      simpler = simplify_sub(in[0], in[1]);
      break;
    case ScalarOp::mul:
      simpler = simplify_mul(in[0], in[1]);
      break;
    case ScalarOp::div:
      simpler = simplify_div(in[0], in[1]);
      break;
    case ScalarOp::pow:
      simpler = simplify_pow(in[0], in[1]);
      break;
    case ScalarOp::select:
      simpler = simplify_select(in[0], in[1], in[2]);
      break;
    case ScalarOp::logical_and:
    case ScalarOp::logical_or:
      simpler = simplify_logic(value->op->scalar, in[0], in[1]);
      break;
    default:
      if (in.size() == 1) simpler = simplify_unary(value);
  }
  return simpler.defined() ? simpler : lift_broadcast(value, wrong);
}

}  // namespace weft
