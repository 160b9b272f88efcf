// A matrix product for library kernels, independent of its operation.
#pragma once

#include <cstdint>

#include "weft/base/dtype.h"
#include "weft/base/shape.h"
#include "weft/ir/value.h"

namespace weft {

// Strides are in elements; that of a batch axis may be 0 (broadcast).
struct MatrixStrides {
  Dims batch;
  int64_t row = 0, column = 0;
};

// result[batch.., m, n] = sum over k of a[batch.., m, k] b[batch.., k, n]. Floating-point sums
// accumulate in float32 (float64 for float64); integer sums wrap around.
struct Contraction {
  DType dtype = DType::f32;
  bool wide = false;  // the result of float16 or bfloat16 operands is the float32 sums
  Dims batch;
  int64_t m = 0, n = 0, k = 0;
  MatrixStrides a, b, result;
  bool accumulate = false;  // adds to the previous contents of the result
};

// Returns the contraction of a `matmul` with the given strides, with the fewest batch axes.
Contraction simplest(const Type& type, const Type& a_type, const Dims& a_strides, const Shape& b,
                     const Dims& b_strides, const Dims& result_strides);

// Returns the task with extents rounded up to padded_row, along axes of stride 1 whose rows are not
// whole multiples of 16 bytes, where the padding of every matrix has space for them.
Contraction padded(const Contraction& task);

}  // namespace weft
