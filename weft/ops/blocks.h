// Declares operations on numbers in blocks (weft/base/numbers/block_format.h): u8 [.., B, bytes],
// where `bytes` are those of a block of `format`, are the numbers [.., B * numbers].
#pragma once

#include <string_view>

#include "weft/ops/ops.h"

namespace weft {

// Returns the numbers [.., B * numbers]; dtypes other than f32 round them once.
Tensor dequantize_blocks(Arg x, std::string_view format, DType dtype = DType::f32);
struct MatmulBlocksOptions {
  // i8 rounds x: each 32 neighbours of a row to integers in [-127, 127] times a float32 scale, so
  // that products are sums of integers, which processors compute faster; gradients are those of x
  // that is not rounded. f32 takes x as it is.
  DType activations = DType::f32;
  // Integers [E]: w is [E, N, B, bytes], and the rows of x [M, K], which are sorted by group, are
  // multiplied by the matrix of their group, as in grouped_matmul(). Empty: w is one matrix.
  Tensor counts = {};
};
// Returns x [.., M, K] times the transpose of the matrix [N, K] that w, u8 [N, B, bytes], holds:
// [.., M, N] in the dtype of x. A vector x [K] gives [N]. The gradient is that of x alone.
Tensor matmul_blocks(Arg x, Arg w, std::string_view format,
                     const MatmulBlocksOptions& options = {});

}  // namespace weft
