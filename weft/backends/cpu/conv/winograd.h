// Computes 3 x 3 convolutions with a quarter of the multiplications, by Winograd's F(4 x 4, 3 x 3)
// (Lavin and Gray 2016, "Fast Algorithms for Convolutional Neural Networks") at the points 0,
// +-5/8, +-3/2 and infinity. Float32 results have errors of 0.5 to 2.5 millionths of their root
// mean square, about twice those of a direct convolution's sums in order.
#pragma once

#include <cstddef>

#include "weft/backends/cpu/conv/im2col.h"

namespace weft::cpu {

// Returns whether winograd_convolve supports the convolution: float32, one group, 3 x 3 without
// dilation, stride 1, channels in multiples of 8.
bool winograd_can(const Convolution& conv);
// Returns whether winograd_convolve is also faster than oneDNN's direct convolution, by
// measurement: enough tiles of 4 x 4 results share a transformed weight.
bool winograd_pays(const Convolution& conv);
// Returns the bytes of scratch on `threads` threads.
size_t winograd_workspace(const Convolution& conv, int threads);
// Returns the bytes of a weight of a convolution forward that is transformed once, and transforms
// it: the operand of convolutions with `packed_weight`.
size_t winograd_packed_bytes(const Convolution& conv);
void winograd_pack_weight(const Convolution& conv, const void* weight, void* packed);
// Convolves; the operands are the same as of im2col_convolve. Results do not depend on `threads`.
void winograd_convolve(const Convolution& conv, const void* a, const void* b, void* result,
                       void* workspace, int threads);

}  // namespace weft::cpu
