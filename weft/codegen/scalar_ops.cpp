#include "weft/codegen/scalar_ops.h"

#include <optional>

#include "weft/codegen/float_formats.h"
#include "weft/codegen/vector_math.h"

namespace weft::loop {
DType storage_type(DType dtype) { return info(dtype).stored_only ? DType::u8 : dtype; }
DType loaded_type(DType dtype) { return info(storage_type(dtype)).computed; }
// Elements that hold several numbers have no format: they are only moved, as bytes.
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
    const Expr value = function(def.name, to_float(args[0]));
    return round_to(convert(value, args[0].type()), to);
  }
  if (def.scalar == ScalarOp::cast && from == to) return args[0];
  const std::optional<Expr> better = formula(def.name, args);
  const Expr value = better ? *better : def.expression(args);
  return def.representable ? value : round_to(value, to);
}

Expr constant(Code& code, DType dtype, double value) {
  if (dtype == DType::boolean) return code.integer(dtype, value != 0 ? 1 : 0);
  if (info(dtype).numbers > 1 || info(dtype).computed == dtype)
    return code.number(info(dtype).computed, value);
  const FloatFormat& format = info(dtype).format;
  return code.number(info(dtype).computed, from_bits(to_bits(value, format), format));
}

}  // namespace weft::loop
