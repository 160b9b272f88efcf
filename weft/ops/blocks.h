// Declares operations on numbers in blocks (weft/base/numbers/block_format.h). A tensor u8
// [.., B, bytes] holds B blocks of `format` along its last axes: the numbers [.., B * numbers].
#pragma once

#include <string_view>

#include "weft/ops/ops.h"

namespace weft {

// Returns the numbers [.., B * numbers]; dtypes other than f32 round them once.
Tensor dequantize_blocks(Arg x, std::string_view format, DType dtype = DType::f32);
struct MatmulBlocksOptions {
  // i8 rounds every 32 neighbours in a row of x to integers in [-127, 127] times a float32 scale.
  // Products are then sums of integers, which processors compute faster; the gradient is that of
  // the unrounded x. f32 takes x as it is.
  DType activations = DType::f32;
  // Integers [E] for a matrix per group, w [E, N, B, bytes]: the rows of x [M, K], sorted by group,
  // are multiplied by the matrix of their group, as in grouped_matmul(). Empty: w is one matrix.
  Tensor counts = {};
};
// Returns x [.., M, K] times the transpose of the matrix [N, K] that w, u8 [N, B, bytes], holds:
// [.., M, N] in the dtype of x. A vector x [K] gives [N]. The gradient is that of x alone.
Tensor matmul_blocks(Arg x, Arg w, std::string_view format,
                     const MatmulBlocksOptions& options = {});

}  // namespace weft
