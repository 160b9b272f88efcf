// Defines operations on the bits of integers (NumPy's, in two's complement).
#include <optional>
#include <utility>

#include "weft/ops/apply.h"
#include "weft/ops/scalar.h"

namespace weft {
namespace {
constexpr std::string_view of_bits = "bits have no gradient";

template <int64_t (*function)(int64_t, int64_t, int64_t)>
double in_doubles(double a, double b, double) {
  return static_cast<double>(function(static_cast<int64_t>(a), static_cast<int64_t>(b), 0));
}
int64_t all_of(int64_t a, int64_t b, int64_t) { return a & b; }
int64_t any_of(int64_t a, int64_t b, int64_t) { return a | b; }
int64_t one_of(int64_t a, int64_t b, int64_t) { return a ^ b; }
int64_t none_of(int64_t a, int64_t, int64_t) { return ~a; }
int64_t moved_left(int64_t a, int64_t b, int64_t) {
  return b < 0 || b > 63 ? 0 : static_cast<int64_t>(static_cast<uint64_t>(a) << b);
}
int64_t moved_right(int64_t a, int64_t b, int64_t) {
  if (b >= 0 && b <= 63) return a >> b;
  return a < 0 ? -1 : 0;
}

Expr complement(Expr x) { return x ^ constant_like(x, -1); }
int64_t bits_of(Expr x) { return info(x.type()).bits; }

// Counts below 0 or of at least the width shift all bits out; the shift instruction does not define
// them.
Expr shift_left_code(Exprs x) {
  const Expr zero = constant_like(x[0], 0);
  const Expr inside = (x[1] >= 0.0) & (x[1] < static_cast<double>(bits_of(x[0])));
  const Expr count = select(inside, x[1], zero);
  return select(inside, loop::shift_left(x[0], count), zero);
}
// The shift fills signed integers with their sign: where x is negative, its complement is shifted.
Expr shift_right_code(Exprs x) {
  const Expr inside = (x[1] >= 0.0) & (x[1] < static_cast<double>(bits_of(x[0])));
  const Expr count = select(inside, x[1], constant_like(x[0], 0));
  if (!has_sign(x[0].type()))
    return select(inside, loop::shift_right(x[0], count), constant_like(x[0], 0));
  const Expr negative = x[0] < 0.0;
  const Expr magnitude = select(negative, complement(x[0]), x[0]);
  const Expr shifted = select(inside, loop::shift_right(magnitude, count), constant_like(x[0], 0));
  return select(negative, complement(shifted), shifted);
}

Type integers_type(std::span<const Tensor> inputs, const Attrs&) {
  WEFT_CHECK(is_integer(inputs[0].dtype()), "[bitwise] works on integers. Got {}.",
             inputs[0].dtype());
  return inputs[0].type();
}

const OpDef& and_def = define({
    .name = "bitwise_and",
    .kind = OpKind::elementwise,
    .arity = 2,
    .infer = integers_type,
    .expression = [](Exprs x) -> Expr { return x[0] & x[1]; },
    .commutes = true,
    .oracle = in_doubles<all_of>,
    .integer_oracle = all_of,
    .test = {.floats = false, .integers = true, .no_gradient = of_bits},
});

const OpDef& or_def = define({
    .name = "bitwise_or",
    .kind = OpKind::elementwise,
    .arity = 2,
    .infer = integers_type,
    .expression = [](Exprs x) -> Expr { return x[0] | x[1]; },
    .commutes = true,
    .oracle = in_doubles<any_of>,
    .integer_oracle = any_of,
    .test = {.floats = false, .integers = true, .no_gradient = of_bits},
});

const OpDef& xor_def = define({
    .name = "bitwise_xor",
    .kind = OpKind::elementwise,
    .arity = 2,
    .infer = integers_type,
    .expression = [](Exprs x) -> Expr { return x[0] ^ x[1]; },
    .commutes = true,
    .oracle = in_doubles<one_of>,
    .integer_oracle = one_of,
    .test = {.floats = false, .integers = true, .no_gradient = of_bits},
});

const OpDef& not_def = define({
    .name = "bitwise_not",
    .kind = OpKind::elementwise,
    .infer = integers_type,
    .expression = [](Exprs x) -> Expr { return complement(x[0]); },
    .oracle = in_doubles<none_of>,
    .integer_oracle = none_of,
    .test = {.floats = false, .integers = true, .no_gradient = of_bits},
});

const OpDef& shift_left_def = define({
    .name = "shift_left",
    .kind = OpKind::elementwise,
    .arity = 2,
    .infer = integers_type,
    .expression = shift_left_code,
    .oracle = in_doubles<moved_left>,
    .integer_oracle = moved_left,
    .test = {.second_low = 0,
             .second_high = 7,
             .floats = false,
             .integers = true,
             .no_gradient = of_bits},
});

const OpDef& shift_right_def = define({
    .name = "shift_right",
    .kind = OpKind::elementwise,
    .arity = 2,
    .infer = integers_type,
    .expression = shift_right_code,
    .oracle = in_doubles<moved_right>,
    .integer_oracle = moved_right,
    .test = {.second_low = 0,
             .second_high = 7,
             .floats = false,
             .integers = true,
             .no_gradient = of_bits},
});

// Returns the type that bitcast() reads `dtype` as: the integer of a float's width and back; for
// bytes, the type with or without a sign.
std::optional<DType> counterpart(DType dtype) {
  constexpr std::pair<DType, DType> pairs[] = {
      {DType::f32, DType::i32}, {DType::f64, DType::i64}, {DType::u8, DType::i8}};
  for (const auto& [a, b] : pairs) {
    if (dtype == a) return b;
    if (dtype == b) return a;
  }
  return std::nullopt;
}

const OpDef& bitcast_def = define({
    .name = "bitcast",
    .kind = OpKind::elementwise,
    .doc = "the same bits as a number of the other type of their width",
    .infer = [](std::span<const Tensor> inputs, const Attrs&) -> Type {
      const std::optional<DType> to = counterpart(inputs[0].dtype());
      WEFT_CHECK(to.has_value(), "[bitcast] no type has the bits of {}.", inputs[0].dtype());
      return {*to, inputs[0].shape()};
    },
    .expression = [](Exprs x) -> Expr { return bitcast(x[0], *counterpart(x[0].type())); },
    .reinterprets = true,
    .oracle = [](double x, double, double) { return x; },
    .test = {.no_gradient = of_bits},
});

void check_integers(const Arg& x, std::string_view op) {
  CallSite here(x.where, op);
  WEFT_CHECK(x.is_scalar || is_integer(x.value.dtype()), "[{}] works on integers. Got {}.", op,
             to_string(x.value.type()));
}
Tensor of_integers(const OpDef& def, const Arg& a, const Arg& b) {
  check_integers(a, def.name);
  check_integers(b, def.name);
  return apply_binary(def, a, b);
}
}  // namespace

Tensor bitwise_and(Arg a, Arg b) { return of_integers(and_def, a, b); }
Tensor bitwise_or(Arg a, Arg b) { return of_integers(or_def, a, b); }
Tensor bitwise_xor(Arg a, Arg b) { return of_integers(xor_def, a, b); }
Tensor bitwise_not(Arg x) {
  check_integers(x, "bitwise_not");
  return apply_unary(not_def, x);
}
Tensor shift_left(Arg x, Arg count) { return of_integers(shift_left_def, x, count); }
Tensor shift_right(Arg x, Arg count) { return of_integers(shift_right_def, x, count); }
Tensor bitcast(Arg x, DType dtype) {
  CallSite here(x.where);
  const DType from = x.value.dtype();
  if (from == dtype) return x.value;
  // Casts between integers of one width keep all bits.
  const bool are_integers = is_integer(from) && is_integer(dtype);
  if ((from == DType::boolean || are_integers) && size_of(dtype) == size_of(from))
    return cast(x.value, dtype);
  WEFT_CHECK(counterpart(from) == dtype,
             "[bitcast] reads f32 as i32, f64 as i64, integers as others of their width, and back. "
             "Got {} as {}.",
             from, dtype);
  return make_node(bitcast_def, {x.value});
}

}  // namespace weft
