// Defines a matrix product for library kernels, independent of its operation.
#pragma once

#include <cstdint>

#include "weft/base/numbers/dtype.h"
#include "weft/base/numbers/shape.h"
#include "weft/ir/value.h"

namespace weft {

// Strides are in elements; the stride of a batch axis may be 0 (broadcast).
struct MatrixStrides {
  Dims batch;
  int64_t row = 0, column = 0;
};

// result[batch.., m, n] = sum over k of a[batch.., m, k] b[batch.., k, n]. Floating-point sums
// accumulate in float32 (float64 for float64); integer sums wrap around.
struct Contraction {
  DType a_dtype = DType::f32, b_dtype = DType::f32;
  DType dtype = DType::f32;  // type of the result
  Dims batch;
  int64_t m = 0, n = 0, k = 0;
  MatrixStrides a, b, result;
  bool accumulate = false;  // adds to the previous contents of the result
  bool fixed_b = false;     // b is a fixed variable (Annotations::fixed): a kernel may pack it
};

// Returns the task of a `matmul` node of this type and these strides, with as few batch axes as the
// strides allow.
Contraction simplest(const Type& type, const Type& a, const Dims& a_strides, const Type& b,
                     const Dims& b_strides, const Dims& result_strides);

// Returns the task with extents rounded up to padded_row, along axes of stride 1 whose rows are not
// whole multiples of 16 bytes, where the padding of every matrix has space for the added elements.
Contraction padded(const Contraction& task);

}  // namespace weft
