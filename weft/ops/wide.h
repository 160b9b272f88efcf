// Composites on 16-bit floats compute in float32 inside and round once, at their end: more exact,
// and cheaper than rounding after every operation.
#pragma once

#include "weft/ops/ops.h"

namespace weft {

// float32 for f16 and bf16, else `x` itself.
inline Value widen(const Value& x) { return computes_wider(x.dtype()) ? cast(x, DType::f32) : x; }
// Back to `dtype` (`x` itself where it has it already).
inline Value narrow_to(const Value& x, DType dtype) {
  return x.dtype() == dtype ? x : cast(x, dtype);
}

// widen(matmul(a, b)) for operands of one rank, with no rounding between.
Value wide_matmul(const Value& a, const Value& b);
// Of a contraction of such operands: their type, or its float32 sums (attr "wide").
inline DType product_dtype(DType operands, const Attrs& attrs) {
  return attrs.has("wide") ? DType::f32 : operands;
}

}  // namespace weft
