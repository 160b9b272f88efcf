// Exports products, convolutions, pooling, softmax, normalization and dequantization.
#include <algorithm>

#include "weft/onnx/export/emitter.h"
#include "weft/onnx/file/types.h"
#include "weft/tensor/tensor.h"

namespace weft::onnx {
namespace {
using Name = std::string;

std::vector<int64_t> on_both_sides(const Dims& padding) {
  std::vector<int64_t> pads = list(padding);
  pads.insert(pads.end(), padding.begin(), padding.end());
  return pads;
}

// Emits a product of two factors. The factors are widened where the sums stay unrounded (attr
// "wide"), and where ONNX has no product of their integer type.
template <class Emit>
Name product(Emitter& to, const weft::Node& node, const Name& a, const Name& b, Emit emit) {
  const DType dtype = node.inputs[0].dtype();
  const bool is_narrow = !is_float(dtype) && size_of(dtype) < 4;
  const DType computed = is_narrow ? DType::i32 : node.type.dtype;
  const Name y = emit(to.cast(a, dtype, computed), to.cast(b, dtype, computed));
  return to.cast(y, computed, node.type.dtype);
}

Name matmul(Emitter& to, const weft::Node& node, Operands x) {
  return product(to, node, x[0], x[1],
                 [&](const Name& a, const Name& b) { return to.add("MatMul", {a, b}); });
}

Emitter::Attributes conv_attributes(const weft::Node& node) {
  const Shape& weight = node.inputs[1].shape();
  return {{"kernel_shape", std::vector<int64_t>{weight[2], weight[3]}},
          {"strides", list(node.attrs.dims("stride"))},
          {"pads", on_both_sides(node.attrs.dims("padding"))},
          {"dilations", list(node.attrs.dims("dilation"))},
          {"group", node.attrs.integer("groups")}};
}

Name conv(Emitter& to, const weft::Node& node, Operands x) {
  return emit_conv(to, node, x[0], x[1], "");
}

// The gradient of a convolution's input is a transposed convolution. Pixels that no window reached
// are its output padding.
Name conv_input_gradient(Emitter& to, const weft::Node& node, Operands x) {
  Emitter::Attributes attributes = conv_attributes(node);
  std::vector<int64_t> further;
  for (int i = 0; i < 2; ++i) {
    const int64_t reach = node.attrs.dims("dilation")[i] * (node.inputs[1].shape()[2 + i] - 1) + 1;
    const int64_t covered = (node.inputs[0].shape()[2 + i] - 1) * node.attrs.dims("stride")[i] -
                            2 * node.attrs.dims("padding")[i] + reach;
    further.push_back(node.type.shape[2 + i] - covered);
  }
  attributes["output_padding"] = further;
  return product(to, node, x[0], x[1], [&](const Name& dy, const Name& weight) {
    return to.add("ConvTranspose", {dy, weight}, attributes);
  });
}

// The gradient of a convolution's weight is a convolution of the images by the gradients of the
// result, in which batch and channels, and stride and dilation, change places.
Name conv_weight_gradient(Emitter& to, const weft::Node& node, Operands x) {
  const Shape &image = node.inputs[0].shape(), &weight = node.type.shape;
  const Shape& dy = node.inputs[1].shape();
  const int64_t groups = node.attrs.integer("groups"), rows = image[0];
  for (const Value& input : node.inputs) to.fixed(*input.node(), 0);
  using Ints = std::vector<int64_t>;
  return product(to, node, x[0], x[1], [&](const Name& images, const Name& gradients) {
    const Name grouped = to.add(
        "Reshape", {images, to.integers({rows, groups, image[1] / groups, image[2], image[3]})});
    const Name across = to.add("Transpose", {grouped}, {{"perm", Ints{2, 1, 0, 3, 4}}});
    const Name columns = to.add(
        "Reshape", {across, to.integers({image[1] / groups, groups * rows, image[2], image[3]})});
    const Name kernel = to.add("Transpose", {gradients}, {{"perm", Ints{1, 0, 2, 3}}});
    const Name y = to.add("Conv", {columns, kernel},
                          {{"kernel_shape", Ints{dy[2], dy[3]}},
                           {"strides", list(node.attrs.dims("dilation"))},
                           {"dilations", list(node.attrs.dims("stride"))},
                           {"pads", on_both_sides(node.attrs.dims("padding"))},
                           {"group", groups}});
    const Name all = to.add("Transpose", {y}, {{"perm", Ints{1, 0, 2, 3}}});
    // Cuts the excess at the end of the kernel, which comes from pixels that no window reached.
    return to.add("Slice", {all, to.integers({0, 0}), to.integers({weight[2], weight[3]}),
                            to.integers({2, 3}), to.integers({1, 1})});
  });
}

Emitter::Attributes window_attributes(const weft::Node& node) {
  return {{"kernel_shape", list(node.attrs.dims("kernel"))},
          {"strides", list(node.attrs.dims("stride"))},
          {"pads", on_both_sides(node.attrs.dims("padding"))}};
}
Name max_pool(Emitter& to, const weft::Node& node, Operands x) {
  return to.add("MaxPool", {x[0]}, window_attributes(node));
}
Name avg_pool(Emitter& to, const weft::Node& node, Operands x) {
  Emitter::Attributes attributes = window_attributes(node);
  attributes["count_include_pad"] = node.attrs.integer("count_include_pad");
  return to.add("AveragePool", {x[0]}, attributes);
}

Name along_axis(Emitter& to, std::string_view op, const weft::Node& node, Operands x) {
  return to.add(op, {x[0]}, {{"axis", node.attrs.integer("axis")}});
}

// ---- normalization

// Returns whether a node normalizes over its last axis, or over several last axes that leave at
// least two others.
bool is_over_last_axes(const weft::Node& node) {
  const Dims& axes = node.attrs.dims("axes");
  const int rank = node.type.shape.size();
  for (int i = 0; i < axes.size(); ++i)
    if (axes[i] != rank - axes.size() + i) return false;
  return axes.size() == 1 || axes.size() + 2 <= rank;
}
Tensor ones_of(int64_t count, DType dtype) {
  return tensor(std::vector<double>(static_cast<size_t>(count), 1), {count}, dtype);
}
Tensor zeros_of(int64_t count, DType dtype) {
  return tensor(std::vector<double>(static_cast<size_t>(count), 0), {count}, dtype);
}

// Emits a LayerNormalization for one axis. Over several axes its weight would have an element for
// each of their positions, so an InstanceNormalization of the axis before them is emitted.
Name normalize(Emitter& to, const weft::Node& node, Operands x) {
  const DType dtype = node.type.dtype;
  const Shape& shape = node.type.shape;
  const int count = node.attrs.dims("axes").size(), first = shape.size() - count;
  const Emitter::Attributes eps{{"epsilon", node.attrs.number("eps")}};
  if (count == 1) {
    Emitter::Attributes attributes = eps;
    attributes["axis"] = int64_t{-1};
    return to.add("LayerNormalization", {x[0], to.constant(ones_of(to.fixed(node, first), dtype))},
                  attributes);
  }
  const int64_t sets = to.fixed(node, first - 1);
  int64_t each = 1;
  for (int axis = first; axis < shape.size(); ++axis) each *= to.fixed(node, axis);
  const Name flat = to.add("Reshape", {x[0], to.integers({-1, sets, each})});
  const Name y =
      to.add("InstanceNormalization",
             {flat, to.constant(ones_of(sets, dtype)), to.constant(zeros_of(sets, dtype))}, eps);
  return to.reshape(y, node);
}

constexpr ExportRow layer_exports[] = {
    {.op = "matmul", .onnx = {}, .emit = matmul, .broadcasts_batch = true},
    {.op = "conv", .onnx = {}, .emit = conv},
    {.op = "conv_input_gradient", .onnx = {}, .emit = conv_input_gradient},
    {.op = "conv_weight_gradient", .onnx = {}, .emit = conv_weight_gradient},
    {.op = "max_pool", .onnx = {}, .emit = max_pool},
    {.op = "avg_pool", .onnx = {}, .emit = avg_pool},
    {.op = "softmax",
     .onnx = {},
     .emit = [](Emitter& to, const weft::Node& node,
                Operands x) { return along_axis(to, "Softmax", node, x); }},
    {.op = "log_softmax",
     .onnx = {},
     .emit = [](Emitter& to, const weft::Node& node,
                Operands x) { return along_axis(to, "LogSoftmax", node, x); }},
    {.op = "normalize", .onnx = {}, .emit = normalize, .takes = is_over_last_axes},
    // match_expression() matches a recurrent layer together with the slice that reads its states.
    {.op = "lstm", .onnx = "LSTM"},
    {.op = "gru", .onnx = "GRU"},
};
}  // namespace

std::span<const ExportRow> layer_export_rows() { return layer_exports; }

std::string emit_conv(Emitter& to, const weft::Node& node, const std::string& x,
                      const std::string& weight, const std::string& bias) {
  return product(to, node, x, weight, [&](const Name& images, const Name& kernel) {
    return to.add("Conv", {images, kernel, bias}, conv_attributes(node));
  });
}

}  // namespace weft::onnx
