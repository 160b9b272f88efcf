// Maps ONNX's quantized operators. Products and convolutions subtract the zero points from their
// integers and sum in int32; only quantize_affine() rounds.
#include <algorithm>

#include "weft/ir/op_def.h"
#include "weft/onnx/file/types.h"
#include "weft/onnx/net/interpreter.h"
#include "weft/onnx/operators/operators.h"
#include "weft/onnx/operators/windows.h"
#include "weft/tensor/wide.h"

namespace weft::onnx {
namespace {
using Tensors = std::vector<Tensor>;

// Returns a scale or zero point by blocks, as quantize_affine() takes it: one number, one for each
// index along an axis or, with block_size, one for that many neighbours along it.
Tensor blocks_of(const Call& call, const Tensor& blocks, const Tensor& x) {
  if (!blocks.defined()) return blocks;
  const int64_t block = call.integer("block_size", 0);
  Shape shape = Dims::filled(x.rank(), 1);
  if (block > 0) {
    const int axis = call.axis("axis", 1, x.rank());
    shape = x.shape();
    shape[axis] = (x.dim(axis) + block - 1) / block;
    if (!(blocks.shape() == shape))
      call.refuse("blocks of {} along axis {} of {} need scales of {}. Got {}", block, axis,
                  to_string(x.shape()), to_string(shape), to_string(blocks.shape()));
    if (x.dim(axis) % block == 0) return blocks;
    return slice(repeat(blocks, block, axis), axis, 0, x.dim(axis));  // the last block is shorter
  }
  if (blocks.rank() > 1)
    call.refuse("a scale or zero is one number, or a list. Got {}", to_string(blocks.type()));
  if (blocks.elements() != 1) {
    const int axis = call.axis("axis", 1, x.rank());
    shape[axis] = x.dim(axis);
    if (blocks.elements() != x.dim(axis))
      call.refuse("axis {} of {} needs as many scales. Got {}", axis, to_string(x.shape()),
                  blocks.elements());
  }
  return reshape(blocks, shape);
}

// Returns the zero point by blocks; empty where the node has none, or it is known to be 0
// everywhere.
Tensor zero_of(const Call& call, const Tensor& x) {
  Tensor zero = blocks_of(call, call.optional(2), x);
  if (!zero.defined() || !call.interpreter().is_constant(zero)) return zero;
  const std::vector<double> elements = constant_elements(zero).to_doubles();
  return std::ranges::all_of(elements, [](double element) { return element == 0; }) ? Tensor()
                                                                                    : zero;
}

// Returns the type of the quantized numbers: the zero point's, or that of attribute output_dtype.
ElementType numbers_of(const Call& call) {
  if (call.has(2)) return {call[2].dtype(), call.bits(2)};
  const int64_t wanted = call.integer("output_dtype", 0);
  return wanted != 0 ? call.type_of(wanted) : ElementType{DType::u8};
}

// An 8-bit float has no zero point; a file may still give one to name the type.
Tensors quantize_linear(const Call& call) {
  Tensor x = call[0];
  const ElementType type = numbers_of(call);
  if (!is_float(x.dtype())) x = cast(x, call[1].dtype());
  Tensor scale = blocks_of(call, call[1], x);
  if (const int64_t precision = call.integer("precision", 0); precision != 0) {
    x = cast(x, call.type_of(precision).dtype);
    scale = cast(scale, x.dtype());
  }
  if (is_float(type.dtype)) {
    if (call.flag("saturate", true)) return {quantize_affine(x, scale, {}, type.dtype)};
    return {cast_without_saturation(x / cast(scale, x.dtype()), type.dtype)};
  }
  const Tensor y = quantize_affine(x, scale, zero_of(call, x), type.dtype);
  if (type.bits == 0) return {y};
  return {call.with_bits(saturated_to(y, type), type.bits)};
}

// Returns whether two scales or zero points are equal: the same value, or equal constants.
bool same_blocks(const Call& call, const Tensor& a, const Tensor& b) {
  if (before_reshapes(a) == before_reshapes(b)) return true;
  Interpreter& interpreter = call.interpreter();
  return a.type() == b.type() && interpreter.is_constant(a) && interpreter.is_constant(b) &&
         constant_elements(a).to_doubles() == constant_elements(b).to_doubles();
}
// Returns whether x was quantized by the scale and zero of this node.
bool is_inverse(const Call& call, const Tensor& x, const Tensor& scale, const Tensor& zero) {
  if (!x->is("quantize_affine") || !same_blocks(call, x->inputs[1], scale)) return false;
  const bool has_zero = x->inputs.size() > 2;
  return has_zero == zero.defined() && (!has_zero || same_blocks(call, x->inputs[2], zero));
}

// A QuantizeLinear followed by a DequantizeLinear of the same scale and zero point becomes one
// fake_quantize(), which has a gradient.
Tensors dequantize_linear(const Call& call) {
  const Tensor& x = call[0];
  const Tensor scale = blocks_of(call, call[1], x);
  const Tensor zero = is_float(x.dtype()) ? Tensor() : zero_of(call, x);
  const int64_t wanted = call.integer("output_dtype", 0);
  const Tensor y = is_inverse(call, x, scale, zero)
                       ? fake_quantize(x->inputs[0], scale, zero, x.dtype())
                       : dequantize(x, wanted == 0 ? scale : widen(scale), zero);
  return {wanted == 0 ? y : cast(y, call.type_of(wanted).dtype)};
}

// Returns the scale and zero for which u8 covers the numbers of x, 0 included.
Tensors dynamic_quantize_linear(const Call& call) {
  const Tensor& x = call[0];
  const Tensor low = minimum(min(x), 0), high = maximum(max(x), 0);
  const Tensor spread = (high - low) / 255;
  const Tensor scale = select(equal(spread, 0), ones_like(spread), spread);
  const Tensor zero = cast(clamp(round(0 - low / scale), 0, 255), DType::u8);
  const Shape one = Dims::filled(x.rank(), 1);
  return {quantize_affine(x, reshape(scale, one), reshape(zero, one), DType::u8), scale, zero};
}

// Returns x - zero in i32. The zero point is one number, or one for each index along `axis`.
Tensor centred(const Call& call, const Tensor& x, const Tensor& zero, int axis) {
  Tensor wide = cast(x, DType::i32);
  if (!zero.defined()) return wide;
  Tensor beside = cast(zero, DType::i32);
  if (zero.elements() == 1) {
    beside = reshape(beside, {});
  } else if (zero.rank() == 1) {
    if (zero.elements() != x.dim(axis))
      call.refuse("{} zeros are not those of axis {} of {}", zero.elements(), axis,
                  to_string(x.shape()));
    Shape shape = Dims::filled(x.rank(), 1);
    shape[axis] = zero.elements();
    beside = reshape(beside, shape);
  }
  return wide - beside;
}

// Returns the product of a and b in i32. Zero points belong to the rows of a and the columns of b.
Tensor product(const Call& call, size_t a, size_t a_zero, size_t b, size_t b_zero) {
  const Tensor left =
      centred(call, call[a], call.optional(a_zero), std::max(call[a].rank() - 2, 0));
  const Tensor right = centred(call, call[b], call.optional(b_zero), call[b].rank() - 1);
  return cast(matmul(left, right), DType::i32);
}

Tensor convolution(const Call& call, size_t x, size_t x_zero, size_t w, size_t w_zero) {
  const Tensor image = centred(call, call[x], call.optional(x_zero), 1);
  const Tensor weight = centred(call, call[w], call.optional(w_zero), 0);
  Dims kernel;
  for (int i = 2; i < weight.rank(); ++i) kernel.push_back(weight.dim(i));
  Windows windows = windows_of(call, image.shape(), kernel);
  const Tensor around = padded(image, windows, 0);
  const ConvOptions options{.stride = windows.stride,
                            .padding = Dims::filled(windows.axes(), 0),
                            .dilation = windows.dilation,
                            .groups = call.integer("group", 1)};
  return conv(around, weight, {}, options);
}

// Multiplies i32 sums by a scale, which broadcasts to them, and rounds the products to `dtype`.
Tensor requantized(const Tensor& sums, const Tensor& scale, const Tensor& y_zero, DType dtype) {
  const Tensor wide = cast(sums, DType::f32) * cast(scale, DType::f32);
  const Shape one = Dims::filled(wide.rank(), 1);
  return quantize_affine(wide, ones(one), y_zero.defined() ? reshape(y_zero, one) : y_zero, dtype);
}

Tensors qlinear_matmul(const Call& call) {
  const Tensor sums = product(call, 0, 2, 3, 5);
  const auto along = [&](const Tensor& scale, int axis) {
    if (scale.elements() == 1) return reshape(scale, {});
    if (scale.rank() != 1) return scale;
    Shape shape = Dims::filled(sums.rank(), 1);
    shape[axis] = scale.elements();
    return reshape(scale, shape);
  };
  const int rows = std::max(sums.rank() - 2, 0), columns = sums.rank() - 1;
  const Tensor scale = along(call[1], rows) * along(call[4], columns) / along(call[6], rows);
  const DType dtype = call.has(7) ? call[7].dtype() : call[0].dtype();
  return {requantized(sums, scale, call.optional(7), dtype)};
}

Tensors qlinear_conv(const Call& call) {
  Tensor sums = convolution(call, 0, 2, 3, 5);
  Shape channels = Dims::filled(sums.rank(), 1);
  channels[1] = sums.dim(1);
  if (call.has(8)) sums = sums + reshape(call[8], channels);
  const Tensor& by_channel = call[4];
  const Tensor weight_scale =
      by_channel.elements() == 1 ? reshape(by_channel, {}) : reshape(by_channel, channels);
  const Tensor scale = reshape(call[1], {}) * weight_scale / reshape(call[6], {});
  const DType dtype = call.has(7) ? call[7].dtype() : call[0].dtype();
  return {requantized(sums, scale, call.optional(7), dtype)};
}

Tensors matmul_integer(const Call& call) { return {product(call, 0, 2, 1, 3)}; }
Tensors conv_integer(const Call& call) { return {convolution(call, 0, 2, 1, 3)}; }

const Operator quantization_rows[] = {
    {"ConvInteger", "@10 4 -> 1: auto_pad dilations group kernel_shape pads strides", conv_integer,
     "", 0, 0, 0b10},
    {"DequantizeLinear", "@10 3 -> 1: axis@13 block_size@21 output_dtype@23", dequantize_linear, "",
     0, 0b10, 0b1},
    {"DynamicQuantizeLinear", "@11 1 -> 3", dynamic_quantize_linear},
    {"MatMulInteger", "@10 4 -> 1", matmul_integer, "", 0, 0, 0b10},
    {"QLinearConv", "@10 9 -> 1: auto_pad dilations group kernel_shape pads strides", qlinear_conv,
     "", 0, 0b10010, 0b100001000},
    {"QLinearMatMul", "@10 8 -> 1", qlinear_matmul, "", 0, 0b10010, 0b1000},
    {"QuantizeLinear", "@10 3 -> 1: axis@13 block_size@21 output_dtype@21 precision@23 saturate@19",
     quantize_linear, "", 0, 0b10},
};
}  // namespace

std::span<const Operator> quantization_operators() { return quantization_rows; }

}  // namespace weft::onnx
