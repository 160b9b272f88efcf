// A matrix product as kernels of libraries see it, whichever operation it is for.
#pragma once

#include <cstdint>

#include "weft/base/dtype.h"
#include "weft/base/shape.h"
#include "weft/ir/value.h"

namespace weft {

// Strides in elements; those of a batch axis may be 0.
struct MatrixStrides {
  Dims batch;
  int64_t row = 0, column = 0;
};

// result[batch.., m, n] = sum over k of a[batch.., m, k] b[batch.., k, n]. Floating point sums are
// in float32 (float64 for float64), integer ones wrap around.
struct Contraction {
  DType a_dtype = DType::f32, b_dtype = DType::f32;
  DType dtype = DType::f32;  // of the result
  Dims batch;
  int64_t m = 0, n = 0, k = 0;
  MatrixStrides a, b, result;
  bool accumulate = false;  // sums begin with what the result holds
};

// Of a node `matmul` of this type, whose operands and result lie so: with as few batch axes as the
// strides allow.
Contraction simplest(const Type& type, const Type& a, const Dims& a_strides, const Type& b,
                     const Dims& b_strides, const Dims& result_strides);

// With those extents rounded up along which elements are neighbours in memory and rows are no
// whole multiples of 16 bytes, where what lies between rows is room enough in every matrix.
Contraction padded(const Contraction& task);

}  // namespace weft
