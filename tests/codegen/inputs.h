// Declares the inputs and options of small kernels.
#pragma once

#include "weft/ops/ops.h"

namespace weft::test {

inline ReduceOptions over(Dims axes) { return {.axes = axes, .keepdim = true}; }
inline Value f32(Shape shape, int index = 0) { return input({DType::f32, shape}, index); }

}  // namespace weft::test
