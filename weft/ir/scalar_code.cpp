#include "weft/ir/scalar_code.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

#include "weft/base/error.h"

namespace weft::loop {
namespace {
// Returns the bytes that identify an instruction: all fields except its axes and phase, which
// follow from them.
std::string key_of(const Instruction& in) {
  std::string key;
  auto put = [&](const auto& value) {
    key.append(reinterpret_cast<const char*>(&value), sizeof value);
  };
  put(in.op), put(in.type), put(in.args), put(in.number), put(in.integer), put(in.low),
      put(in.high);
  put(in.operand), put(in.storage), put(in.scale), put(in.reduction), put(in.largest);
  key.append(in.function);
  put(in.at.offset);
  for (int64_t stride : in.at.strides) put(stride);
  return key;
}

uint32_t axes_of(const Affine& at) {
  uint32_t axes = 0;
  for (int i = 0; i < at.strides.size(); ++i)
    if (at.strides[i] != 0) axes |= 1u << i;
  return axes;
}

Expr compare(Op op, Expr a, Expr b) { return a.code->op(op, DType::boolean, a, b); }
Expr binary(Op op, Expr a, Expr b) {
  WEFT_ASSERT(a.type() == b.type(), "operands of types {} and {}", name(a.type()), name(b.type()));
  return a.code->op(op, a.type(), a, b);
}
Expr unary(Op op, Expr x) { return x.code->op(op, x.type(), x); }
}  // namespace

DType Expr::type() const { return code->at(id).type; }

Expr Code::number(DType type, double value) {
  if (!is_float(type)) return integer(type, static_cast<int64_t>(value));
  double rounded = type == DType::f64 ? value : static_cast<float>(value);
  return add({.op = Op::constant, .type = type, .number = rounded});
}

Expr Code::integer(DType type, int64_t value) {
  return add({.op = Op::constant, .type = type, .integer = value});
}

Expr Code::add(Instruction in) {
  in.axes |= axes_of(in.at);
  for (int arg : in.args) {
    if (arg < 0) continue;
    in.axes |= at(arg).axes;
    in.phase = std::max(in.phase, at(arg).phase);
  }
  if (in.op == Op::reduce) {
    in.axes &= ~kernel_.reduced_axes();
    ++in.phase;
  }
  auto [it, fresh] = known_.try_emplace(key_of(in), static_cast<int>(kernel_.code.size()));
  if (fresh) kernel_.code.push_back(in);
  return {this, it->second};
}

Expr Code::op(Op op, DType type, Expr a, Expr b, Expr c) {
  return add({.op = op, .type = type, .args = {a.id, b.id, c.id}});
}

Expr constant_like(Expr like, double value) { return like.code->number(like.type(), value); }

Expr operator+(Expr a, Expr b) { return binary(Op::add, a, b); }
Expr operator-(Expr a, Expr b) { return binary(Op::sub, a, b); }
Expr operator*(Expr a, Expr b) { return binary(Op::mul, a, b); }
Expr operator/(Expr a, Expr b) { return binary(Op::div, a, b); }
Expr operator-(Expr a) { return unary(Op::neg, a); }
Expr operator+(Expr a, double b) { return a + constant_like(a, b); }
Expr operator-(Expr a, double b) { return a - constant_like(a, b); }
Expr operator-(double a, Expr b) { return constant_like(b, a) - b; }
Expr operator*(Expr a, double b) { return a * constant_like(a, b); }
Expr operator/(double a, Expr b) { return constant_like(b, a) / b; }
Expr operator%(Expr a, Expr b) { return binary(Op::remainder, a, b); }
Expr operator&(Expr a, Expr b) { return binary(Op::logic_and, a, b); }
Expr operator|(Expr a, Expr b) { return binary(Op::logic_or, a, b); }
Expr operator^(Expr a, Expr b) { return binary(Op::logic_xor, a, b); }
Expr operator&(Expr a, int64_t b) { return a & a.code->integer(a.type(), b); }
Expr operator|(Expr a, int64_t b) { return a | a.code->integer(a.type(), b); }
Expr shift_left(Expr a, Expr count) { return binary(Op::shift_left, a, count); }
Expr shift_right(Expr a, Expr count) { return binary(Op::shift_right, a, count); }
Expr operator<<(Expr a, int bits) { return shift_left(a, a.code->integer(a.type(), bits)); }
Expr operator>>(Expr a, int bits) { return shift_right(a, a.code->integer(a.type(), bits)); }
Expr operator!(Expr a) { return a ^ a.code->integer(DType::boolean, 1); }
Expr operator<(Expr a, Expr b) { return compare(Op::less, a, b); }
Expr operator<=(Expr a, Expr b) { return compare(Op::less_equal, a, b); }
Expr operator>(Expr a, Expr b) { return compare(Op::greater, a, b); }
Expr operator>=(Expr a, Expr b) { return compare(Op::greater_equal, a, b); }
Expr operator==(Expr a, Expr b) { return compare(Op::equal, a, b); }
Expr operator!=(Expr a, Expr b) { return compare(Op::not_equal, a, b); }
Expr operator<(Expr a, double b) { return a < constant_like(a, b); }
Expr operator<=(Expr a, double b) { return a <= constant_like(a, b); }
Expr operator>(Expr a, double b) { return a > constant_like(a, b); }
Expr operator>=(Expr a, double b) { return a >= constant_like(a, b); }
Expr operator==(Expr a, double b) { return a == constant_like(a, b); }
Expr operator!=(Expr a, double b) { return a != constant_like(a, b); }

Expr fma(Expr a, Expr b, Expr c) { return a.code->op(Op::fma, a.type(), a, b, c); }
Expr fma(Expr a, Expr b, double c) { return fma(a, b, constant_like(a, c)); }
Expr fma(Expr a, double b, Expr c) { return fma(a, constant_like(a, b), c); }
Expr scale(Expr x, Expr exponent) { return binary(Op::scale, x, exponent); }
Expr select(Expr condition, Expr a, Expr b) {
  WEFT_ASSERT(a.type() == b.type(), "branches of types {} and {}", name(a.type()), name(b.type()));
  return condition.code->op(Op::select, a.type(), condition, a, b);
}
Expr select(Expr condition, Expr a, double b) { return select(condition, a, constant_like(a, b)); }
Expr select(Expr condition, double a, Expr b) { return select(condition, constant_like(b, a), b); }
bool is_instruction(std::string_view function) {
  constexpr std::string_view known[] = {"sqrt", "floor", "ceil", "trunc", "rint"};
  return std::ranges::find(known, function) != std::end(known);
}
Expr intrinsic(std::string_view function, Expr x) {
  return x.code->add(
      {.op = Op::intrinsic, .type = x.type(), .args = {x.id, -1, -1}, .function = function});
}
Expr sqrt(Expr x) { return intrinsic("sqrt", x); }
Expr floor(Expr x) { return intrinsic("floor", x); }
Expr rint(Expr x) { return intrinsic("rint", x); }
Expr abs(Expr x) { return unary(Op::abs, x); }
Expr is_nan(Expr x) { return x != x; }
Expr is_finite(Expr x) {
  if (!is_float(x.type())) return x.code->integer(DType::boolean, 1);
  return abs(x) < std::numeric_limits<double>::infinity();
}
Expr truth(Expr x) { return convert(x, DType::boolean); }
Expr to_float(Expr x) { return is_float(x.type()) ? x : convert(x, DType::f64); }
Expr floored_rest(Expr b, Expr rest) {
  return select((rest != 0.0) & ((rest < 0.0) != (b < 0.0)), rest + b, rest);
}
Expr floored_quotient(Expr a, Expr b, Expr floored) {
  const Expr tiny = (floored == 0.0) & (a != 0.0) & ((a < 0.0) != (b < 0.0));
  const Expr quotient = select(tiny, constant_like(floored, -1), floored);
  return select(is_finite(a) | (b == 0.0), quotient, std::numeric_limits<double>::quiet_NaN());
}

Expr convert(Expr x, DType type) { return x.type() == type ? x : x.code->op(Op::convert, type, x); }
Expr bitcast(Expr x, DType type) { return x.code->op(Op::bitcast, type, x); }

Expr call(std::string_view function, Expr a, Expr b) {
  Instruction in{.op = Op::call, .type = a.type(), .args = {a.id, b.id, -1}};
  in.function = function;
  return a.code->add(in);
}

namespace {
// Selects as x86's maximum and minimum instructions do, which return the second operand if either
// is nan.
Expr extremum(Op better, Expr a, Expr b) {
  const Instruction& first = a.code->at(a.id);
  if (first.op == Op::constant && !std::isnan(first.number)) std::swap(a, b);
  const Instruction& second = b.code->at(b.id);
  if (!is_float(a.type()) || (second.op == Op::constant && !std::isnan(second.number)))
    return select(compare(better, b, a), b, a);
  return select(is_nan(a), a, select(compare(better, a, b), a, b));
}
}  // namespace
Expr maximum(Expr a, Expr b) { return extremum(Op::greater, a, b); }
Expr minimum(Expr a, Expr b) { return extremum(Op::less, a, b); }

}  // namespace weft::loop
