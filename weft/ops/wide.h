// Composites on 16-bit floats compute in float32 inside and round once, at their end, which is more
// exact and cheaper than rounding after every operation. Composites with a sum must do so: a sum
// passes the largest float16, 65,504, long before the mean or the norm that it leads to.
#pragma once

#include "weft/ops/ops.h"

namespace weft {

// Returns `x` in float32 if it is f16 or bf16, else unchanged.
inline Tensor widen(const Tensor& x) { return computes_wider(x.dtype()) ? cast(x, DType::f32) : x; }
// Returns the type of a product of two types: the wider float; float32 for two floats without a
// common type (float16 and bfloat16) or for types that only store; the float beside an 8-bit
// integer; of two integers, int32 if it holds the numbers of both, else int64. Throws Error(usage)
// for a float beside a wider integer, and for types of several numbers per element.
DType mixed_product_dtype(DType a, DType b);
// Returns `x` back in `dtype` (`x` itself where it has it already).
inline Tensor narrow_to(const Tensor& x, DType dtype) {
  return x.dtype() == dtype ? x : cast(x, dtype);
}
// Returns body(x), computed in float32 if x is f16 or bf16 and then rounded once.
template <class Body>
Tensor in_wide(const Tensor& x, Body&& body) {
  return narrow_to(body(widen(x)), x.dtype());
}

// Computes widen(matmul(a, b)) without rounding in between.
Tensor wide_matmul(const Tensor& a, const Tensor& b);
// Returns the result type of a contraction: that of its operands, or f32 for its unrounded sums
// (attr "wide").
inline DType product_dtype(DType operands, const Attrs& attrs) {
  return attrs.has("wide") ? DType::f32 : operands;
}

}  // namespace weft
