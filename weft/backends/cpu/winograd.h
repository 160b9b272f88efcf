// Convolutions of 3 x 3 elements with a quarter of the multiplications: F(4 x 4, 3 x 3) of Lavin
// and Gray (2016), "Fast Algorithms for Convolutional Neural Networks", at the points 0, +-5/8,
// +-3/2 and infinity. Results in float32 are off by 0.5 to 2.5 millionths of their root mean
// square, about twice what a direct convolution's sums in order are.
#pragma once

#include <cstddef>

#include "weft/backends/cpu/im2col.h"

namespace weft::cpu {

// Whether it can do the convolution: float32, 3 x 3 elements next to each other, stride 1, channels
// in multiples of 16.
bool winograd_can(const Convolution& conv);
// And is faster than oneDNN's direct one, by measurement: enough channels, and enough tiles of
// 4 x 4 results that share a transformed weight.
bool winograd_pays(const Convolution& conv);
// Bytes of scratch on `threads` threads.
size_t winograd_workspace(const Convolution& conv, int threads);
// Operands as im2col_convolve has them. Results do not depend on `threads`.
void winograd_convolve(const Convolution& conv, const void* a, const void* b, void* result,
                       void* workspace, int threads);

}  // namespace weft::cpu
