// The register-tiled matrix product for every numeric type and any strides: what oneDNN lacks
// (float64, float16, integers), and what it would need copies for.
//
// The products of one element are summed `contraction_depth` at a time, from the first on, and
// those sums in order: whatever the threads, the strides and the other elements.
#pragma once

#include <cstddef>
#include <cstdint>

#include "weft/base/dtype.h"
#include "weft/base/shape.h"

namespace weft::cpu {

// Strides in elements; those of a batch axis may be 0.
struct MatrixStrides {
  Dims batch;
  int64_t row = 0, column = 0;
};

// result[batch.., m, n] = sum over k of a[batch.., m, k] b[batch.., k, n]. Floating point sums are
// in float32 (float64 for float64), integer ones wrap around.
struct Contraction {
  DType dtype = DType::f32;
  bool wide = false;  // float16 and bfloat16: the result is the float32 sums
  Dims batch;
  int64_t m = 0, n = 0, k = 0;
  MatrixStrides a, b, result;
  bool accumulate = false;  // sums begin with what the result holds
};

constexpr int64_t contraction_depth = 256;

// Bytes of scratch that contract() needs on `threads` threads.
size_t contraction_workspace(const Contraction& task, int threads);
// `workspace` is aligned to buffer_alignment and may be what `threads` of workspace needs.
void contract(const Contraction& task, const void* a, const void* b, void* result, void* workspace,
              int threads);

// Whether contract() knows the type (every number; not bool).
bool contracts(DType dtype);
// Whether the result can hold the sums, so that more can be added to them.
bool accumulates(const Contraction& task);

}  // namespace weft::cpu
