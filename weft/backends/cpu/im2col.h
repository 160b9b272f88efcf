// Computes convolutions of the types that oneDNN lacks: windows become rows of a matrix (im2col),
// which the contraction of contraction.h multiplies. Activations are channels-last, weights
// row-major.
#pragma once

#include <cstddef>

#include "weft/base/dtype.h"
#include "weft/base/shape.h"

namespace weft::cpu {

// x[batch, channels, in] * weight[outputs, channels / groups, kernel] -> y[batch, outputs, out]
struct Convolution {
  enum class Kind { forward, input_gradient, weight_gradient };
  Kind kind = Kind::forward;
  DType dtype = DType::f32;
  bool wide = false;  // float16 and bfloat16: the result is the float32 sums
  int64_t batch = 0, channels = 0, outputs = 0, groups = 1;
  Dims in, out, kernel;  // extents of the two spatial axes
  Dims stride, padding, dilation;

  DType result_dtype() const { return wide ? DType::f32 : dtype; }
  Shape x_shape() const { return {batch, channels, in[0], in[1]}; }
  Shape weight_shape() const { return {outputs, channels / groups, kernel[0], kernel[1]}; }
  Shape y_shape() const { return {batch, outputs, out[0], out[1]}; }
};

// Returns the bytes of scratch on `threads` threads.
size_t im2col_workspace(const Convolution& conv, int threads);
// Convolves a and b to the result: x, weight -> y (forward); dy, weight -> dx (input_gradient); x,
// dy -> dweight (weight_gradient).
void im2col_convolve(const Convolution& conv, const void* a, const void* b, void* result,
                     void* workspace, int threads);

}  // namespace weft::cpu
