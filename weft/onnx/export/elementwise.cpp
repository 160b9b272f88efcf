// Exports elementwise operations, whose operands may broadcast. A function without an ONNX operator
// is composed of several operators, in a form that loses no digits.
#include <cmath>
#include <numbers>

#include "weft/onnx/export/emitter.h"
#include "weft/onnx/file/types.h"

namespace weft::onnx {
namespace {
using Name = std::string;

// An Of writes operators of one type as formulae are written: t.mul(t(2), x).
struct Of {
  Emitter& to;
  DType dtype;

  Name operator()(double value) const { return to.number(value, dtype); }
  Name add(const Name& a, const Name& b) const { return to.add("Add", {a, b}); }
  Name sub(const Name& a, const Name& b) const { return to.add("Sub", {a, b}); }
  Name mul(const Name& a, const Name& b) const { return to.add("Mul", {a, b}); }
  Name div(const Name& a, const Name& b) const { return to.add("Div", {a, b}); }
  Name pow(const Name& a, const Name& b) const { return to.add("Pow", {a, b}); }
  Name abs(const Name& x) const { return to.add("Abs", {x}); }
  Name sign(const Name& x) const { return to.add("Sign", {x}); }
  Name less(const Name& a, const Name& b) const { return to.add("Less", {a, b}); }
  Name equal(const Name& a, const Name& b) const { return to.add("Equal", {a, b}); }
  Name both(const Name& a, const Name& b) const { return to.add("And", {a, b}); }
  Name where(const Name& condition, const Name& a, const Name& b) const {
    return to.add("Where", {condition, a, b});
  }
};
Of of(Emitter& to, const weft::Node& node) { return {to, node.inputs[0].dtype()}; }

Name truth(Emitter& to, const weft::Node& node, size_t input, Operands x) {
  return to.cast(x[input], node.inputs[input].dtype(), DType::boolean);
}
// Emits And, Or or Xor.
Name logical(Emitter& to, std::string_view op, const weft::Node& node, Operands x) {
  return to.add(op, {truth(to, node, 0, x), truth(to, node, 1, x)});
}

// Comparisons of bool order false before true.
Name compare(Emitter& to, std::string_view op, const weft::Node& node, Operands x) {
  if (node.inputs[0].dtype() != DType::boolean) return to.add(op, {x[0], x[1]});
  return to.add(
      op, {to.cast(x[0], DType::boolean, DType::i32), to.cast(x[1], DType::boolean, DType::i32)});
}

Name negate(Emitter& to, const weft::Node& node, Operands x) {
  const DType dtype = node.type.dtype;
  if (!has_sign(dtype)) return to.add("Sub", {to.number(0, dtype), x[0]});
  return to.add("Neg", {x[0]});
}
Name relu(Emitter& to, const weft::Node& node, Operands x) {
  if (!has_sign(node.type.dtype)) return to.add("Identity", {x[0]});
  return to.add("Relu", {x[0]});
}

// exp(x) - 1 = 2 t / (1 - t) for t = tanh(x / 2), which keeps the digits of a small x.
Name expm1(Emitter& to, const weft::Node& node, Operands x) {
  const Of t = of(to, node);
  const Name half = to.add("Tanh", {t.mul(x[0], t(0.5))});
  const Name near = t.div(t.add(half, half), t.sub(t(1), half));
  return t.where(t.less(t.abs(x[0]), t(1)), near, t.sub(to.add("Exp", {x[0]}), t(1)));
}
// log(1 + x) = x log(u) / (u - 1) for the rounded u = 1 + x (Goldberg 1991, theorem 4).
Name log1p(Emitter& to, const weft::Node& node, Operands x) {
  const Of t = of(to, node);
  const Name u = t.add(x[0], t(1)), log = to.add("Log", {u}), rest = t.sub(u, t(1));
  const Name is_lost = t.equal(rest, t(0));
  const Name near = t.div(t.mul(x[0], log), t.where(is_lost, t(1), rest));
  const Name is_near = t.less(t.abs(x[0]), t(0.5));
  return t.where(is_near, t.where(is_lost, x[0], near), log);
}
Name rsqrt(Emitter& to, const weft::Node&, Operands x) {
  return to.add("Reciprocal", {to.add("Sqrt", {x[0]})});
}
Name cbrt(Emitter& to, const weft::Node& node, Operands x) {
  const Of t = of(to, node);
  return t.mul(t.sign(x[0]), t.pow(t.abs(x[0]), t(1.0 / 3)));
}
Name truncate(Emitter& to, const weft::Node& node, Operands x) {
  const Of t = of(to, node);
  return t.mul(t.sign(x[0]), to.add("Floor", {t.abs(x[0])}));
}
// x - x is NaN for infinities, too.
Name is_finite(Emitter& to, const weft::Node& node, Operands x) {
  const Of t = of(to, node);
  return t.equal(t.sub(x[0], x[0]), t(0));
}

// Weft's casts saturate; ONNX leaves numbers beyond the range of narrow integers undefined.
Name cast(Emitter& to, const weft::Node& node, Operands x) {
  DType from = node.inputs[0].dtype(), dtype = node.type.dtype;
  for (DType* type : {&from, &dtype})
    if (*type == DType::i4x2) *type = DType::u8;  // as bytes
  const bool narrows = is_float(from) && is_integer(dtype) && size_of(dtype) <= 2;
  if (!narrows) return from == dtype ? to.add("Identity", {x[0]}) : to.cast(x[0], from, dtype);
  const double largest = std::ldexp(1, whole_bits(dtype)) - 1;
  const Name wide = to.cast(x[0], from, DType::f32);
  const Name low = to.number(has_sign(dtype) ? -largest - 1 : 0, DType::f32);
  return to.cast(to.add("Clip", {wide, low, to.number(largest, DType::f32)}), DType::f32, dtype);
}

// ---- two and three operands

// Returns the remainder with the divisor's sign. ONNX's Mod has that sign for integers only; for
// floats (fmod) the remainder has the dividend's.
Name remainder_of(const Of& t, const Name& a, const Name& b) {
  if (!is_float(t.dtype)) return t.to.add("Mod", {a, b});
  const Name rest = t.to.add("Mod", {a, b}, {{"fmod", int64_t{1}}});
  const Name opposite = t.to.add("Xor", {t.less(rest, t(0)), t.less(b, t(0))});
  const Name is_off = t.both(opposite, t.to.add("Not", {t.equal(rest, t(0))}));
  return t.where(is_off, t.add(rest, b), rest);
}
Name remainder(Emitter& to, const weft::Node& node, Operands x) {
  return remainder_of(of(to, node), x[0], x[1]);
}
Name floor_divide(Emitter& to, const weft::Node& node, Operands x) {
  const Of t = of(to, node);
  const Name quotient = t.div(t.sub(x[0], remainder_of(t, x[0], x[1])), x[1]);
  return is_float(t.dtype) ? to.add("Round", {quotient}) : quotient;
}

Name atan2(Emitter& to, const weft::Node& node, Operands operands) {
  const Of t = of(to, node);
  const Name &y = operands[0], &x = operands[1];
  constexpr double pi = std::numbers::pi;
  const Name is_zero = t.equal(x, t(0));
  const Name angle = to.add("Atan", {t.div(y, t.where(is_zero, t(1), x))});
  const Name behind = t.where(t.less(y, t(0)), t(-pi), t(pi));
  const Name beside = t.mul(t.sign(y), t(pi / 2));
  return t.where(is_zero, beside, t.add(angle, t.where(t.less(x, t(0)), behind, t(0))));
}

// Shifts of all integers are products and quotients by powers of two, in i64: ONNX's BitShift takes
// unsigned integers only.
template <bool left>
Name shift(Emitter& to, const weft::Node& node, Operands x) {
  const DType dtype = node.type.dtype;
  const Of t{to, DType::i64};
  const Name value = to.cast(x[0], dtype, DType::i64), given = to.cast(x[1], dtype, DType::i64);
  const Name inside = t.both(t.less(t(-1), given), t.less(given, t(info(dtype).bits)));
  const Name power = t.pow(t(2), t.where(inside, given, t(0)));
  const Name shifted =
      left ? t.mul(value, power) : t.div(t.sub(value, remainder_of(t, value, power)), power);
  const Name out = left ? t(0) : t.where(t.less(value, t(0)), t(-1), t(0));
  return to.cast(t.where(inside, shifted, out), DType::i64, dtype);
}

// ---- activations

Name silu(Emitter& to, const weft::Node&, Operands x) {
  return to.add("Mul", {x[0], to.add("Sigmoid", {x[0]})});
}
// Runtimes know GELU in this form, and replace it by one kernel.
Name gelu(Emitter& to, const weft::Node& node, Operands x) {
  const Of t = of(to, node);
  const Name erf = to.add("Erf", {t.div(x[0], t(std::numbers::sqrt2))});
  return t.mul(t.mul(x[0], t.add(erf, t(1))), t(0.5));
}

constexpr ExportRow direct(std::string_view op, std::string_view onnx) {
  return {.op = op, .onnx = onnx, .elementwise = true};
}
using Emit = decltype(ExportRow::emit);
constexpr ExportRow row(std::string_view op, Emit emit) {
  return {.op = op, .onnx = {}, .emit = emit, .elementwise = true};
}
constexpr ExportRow elementwise_exports[] = {
    direct("abs", "Abs"),
    direct("sign", "Sign"),
    direct("exp", "Exp"),
    direct("log", "Log"),
    direct("sqrt", "Sqrt"),
    direct("sin", "Sin"),
    direct("cos", "Cos"),
    direct("tan", "Tan"),
    direct("asin", "Asin"),
    direct("acos", "Acos"),
    direct("atan", "Atan"),
    direct("sinh", "Sinh"),
    direct("cosh", "Cosh"),
    direct("tanh", "Tanh"),
    direct("asinh", "Asinh"),
    direct("acosh", "Acosh"),
    direct("atanh", "Atanh"),
    direct("erf", "Erf"),
    direct("floor", "Floor"),
    direct("ceil", "Ceil"),
    direct("round", "Round"),
    direct("reciprocal", "Reciprocal"),
    direct("is_nan", "IsNaN"),
    direct("add", "Add"),
    direct("sub", "Sub"),
    direct("mul", "Mul"),
    direct("div", "Div"),
    direct("pow", "Pow"),
    direct("maximum", "Max"),
    direct("minimum", "Min"),
    direct("equal", "Equal"),
    direct("select", "Where"),
    direct("bitwise_and", "BitwiseAnd"),
    direct("bitwise_or", "BitwiseOr"),
    direct("bitwise_xor", "BitwiseXor"),
    direct("bitwise_not", "BitwiseNot"),
    direct("sigmoid", "Sigmoid"),
    direct("softplus", "Softplus"),
    row("neg", negate),
    row("relu", relu),
    row("silu", silu),
    row("gelu", gelu),
    row("exp2",
        [](Emitter& to, const weft::Node& node, Operands x) {
          const Of t = of(to, node);
          return t.pow(t(2), x[0]);
        }),
    row("expm1", expm1),
    row("log2",
        [](Emitter& to, const weft::Node& node, Operands x) {
          const Of t = of(to, node);
          return t.mul(to.add("Log", {x[0]}), t(std::numbers::log2e));
        }),
    row("log10",
        [](Emitter& to, const weft::Node& node, Operands x) {
          const Of t = of(to, node);
          return t.mul(to.add("Log", {x[0]}), t(std::numbers::log10e));
        }),
    row("log1p", log1p),
    row("rsqrt", rsqrt),
    row("cbrt", cbrt),
    row("erfc",
        [](Emitter& to, const weft::Node& node, Operands x) {
          const Of t = of(to, node);
          return t.sub(t(1), to.add("Erf", {x[0]}));
        }),
    row("trunc", truncate),
    row("is_finite", is_finite),
    row("logical_not", [](Emitter& to, const weft::Node& node,
                          Operands x) { return to.add("Not", {truth(to, node, 0, x)}); }),
    row("cast", cast),
    row("bitcast",
        [](Emitter& to, const weft::Node& node, Operands x) {
          to.require(26);
          return to.add("BitCast", {x[0]}, {{"to", onnx_type(node.type.dtype)}});
        }),
    row("remainder", remainder),
    row("floor_divide", floor_divide),
    row("atan2", atan2),
    row("not_equal", [](Emitter& to, const weft::Node&,
                        Operands x) { return to.add("Not", {to.add("Equal", {x[0], x[1]})}); }),
    row("less", [](Emitter& to, const weft::Node& node,
                   Operands x) { return compare(to, "Less", node, x); }),
    row("greater", [](Emitter& to, const weft::Node& node,
                      Operands x) { return compare(to, "Greater", node, x); }),
    row("less_equal", [](Emitter& to, const weft::Node& node,
                         Operands x) { return compare(to, "LessOrEqual", node, x); }),
    row("greater_equal", [](Emitter& to, const weft::Node& node,
                            Operands x) { return compare(to, "GreaterOrEqual", node, x); }),
    row("logical_and", [](Emitter& to, const weft::Node& node,
                          Operands x) { return logical(to, "And", node, x); }),
    row("logical_or",
        [](Emitter& to, const weft::Node& node, Operands x) { return logical(to, "Or", node, x); }),
    row("logical_xor", [](Emitter& to, const weft::Node& node,
                          Operands x) { return logical(to, "Xor", node, x); }),
    row("shift_left", shift<true>),
    row("shift_right", shift<false>),
};
}  // namespace

std::span<const ExportRow> elementwise_export_rows() { return elementwise_exports; }

}  // namespace weft::onnx
