// Computes convolutions of the types that oneDNN lacks: windows become rows of a matrix (im2col),
// which the contraction of contraction.h multiplies. Activations are channels-last, weights
// row-major.
#pragma once

#include <cstddef>

#include "weft/base/numbers/dtype.h"
#include "weft/base/numbers/shape.h"

namespace weft::cpu {

// x[batch, channels, in] * weight[outputs, channels / groups, kernel] -> y[batch, outputs, out]
struct Convolution {
  enum class Kind { forward, input_gradient, weight_gradient };
  Kind kind = Kind::forward;
  DType dtype = DType::f32, weight_dtype = DType::f32;
  bool wide = false;  // the result is the sums: float32 of narrower floats, int32 of 8-bit integers
  bool packed_weight = false;  // im2col_pack_weight or winograd_pack_weight wrote the weight
  int64_t batch = 0, channels = 0, outputs = 0, groups = 1;
  Dims in, out, kernel;  // extents of the two spatial axes
  Dims stride, padding, dilation;

  DType result_dtype() const {
    if (!wide) return dtype;
    return is_float(dtype) ? DType::f32 : DType::i32;
  }
  Shape x_shape() const { return {batch, channels, in[0], in[1]}; }
  Shape weight_shape() const { return {outputs, channels / groups, kernel[0], kernel[1]}; }
  Shape y_shape() const { return {batch, outputs, out[0], out[1]}; }
};

// Returns the bytes of scratch on `threads` threads.
size_t im2col_workspace(const Convolution& conv, int threads);
// Packs a weight once for forward convolutions with `packed_weight`. `packed` has the weight's
// size.
void im2col_pack_weight(const Convolution& conv, const void* weight, void* packed);
// Convolves a and b to the result: x, weight -> y (forward); dy, weight -> dx (input_gradient); x,
// dy -> dweight (weight_gradient).
void im2col_convolve(const Convolution& conv, const void* a, const void* b, void* result,
                     void* workspace, int threads);

}  // namespace weft::cpu
