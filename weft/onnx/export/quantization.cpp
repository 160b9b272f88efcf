// Exports quantization as QuantizeLinear and DequantizeLinear, with one scale for the whole tensor
// or one for each index along an axis.
#include <utility>

#include "weft/onnx/export/emitter.h"
#include "weft/tensor/tensor.h"

namespace weft::onnx {
namespace {
using Name = std::string;

const Value& scale_of(const weft::Node& node) { return node.inputs[1]; }
DType numbers_of(const weft::Node& node) {
  if (node.is("dequantize")) return node.inputs[0].dtype();
  return static_cast<DType>(node.attrs.integer("dtype"));
}

// Returns the axis along which the scale varies; -1 for a single scale, nullopt for a scale that
// the operators cannot have (by blocks, or along several axes).
std::optional<int> scale_axis(const weft::Node& node) {
  const Shape &x = node.inputs[0].shape(), &scale = scale_of(node).shape();
  std::optional<int> axis;
  for (int i = 0; i < x.size(); ++i) {
    if (scale[i] == 1) continue;
    if (scale[i] != x[i] || axis) return {};
    axis = i;
  }
  return axis.value_or(-1);
}

bool is_linear(const weft::Node& node) {
  const DType dtype = numbers_of(node);
  const bool same_zero =
      node.inputs.size() < 3 || node.inputs[2].type() == (Type{dtype, scale_of(node).shape()});
  const bool floats = node.is("dequantize") || node.inputs[0].dtype() == DType::f32;
  return is_integer(dtype) && size_of(dtype) <= 2 && scale_of(node).dtype() == DType::f32 &&
         floats && same_zero && node.type.elements() > 0 && scale_axis(node).has_value();
}

// Returns the value under the reshapes that has shape `shape`; `value` itself where none has it.
Value behind_reshapes(const Value& value, const Shape& shape) {
  for (const Value* at = &value;; at = &(*at)->inputs[0]) {
    if (at->shape() == shape) return *at;
    if (!(*at)->is("reshape")) return value;
  }
}

// Returns the shape of scale and zero point in ONNX: [], or [extent of the axis].
Shape list_of(const weft::Node& node) {
  const int axis = *scale_axis(node);
  return axis < 0 ? Shape() : Shape{scale_of(node).dim(axis)};
}
std::vector<int64_t> extents(const Shape& shape) { return {shape.begin(), shape.end()}; }

// Emits QuantizeLinear (if `rounds`) or DequantizeLinear on operand, scale and optional zero point;
// for fake_quantize both.
Name emit(Emitter& to, const weft::Node& node, std::vector<Name> inputs, bool rounds) {
  const int axis = *scale_axis(node);
  Emitter::Attributes attributes;
  if (axis >= 0) {
    static_cast<void>(to.fixed(*node.inputs[0].node(), axis));
    attributes["axis"] = int64_t{axis};
  }
  if (size_of(numbers_of(node)) > 1) to.require(21);
  // The type of the zero point decides the type of the result.
  if (rounds && inputs.size() < 3)
    inputs.push_back(to.constant(zeros(list_of(node), numbers_of(node)), "zero"));
  Name y = to.add(rounds ? "QuantizeLinear" : "DequantizeLinear", inputs, attributes);
  if (!node.is("fake_quantize")) return y;
  inputs[0] = std::move(y);
  return to.add("DequantizeLinear", inputs, attributes);
}

constexpr ExportRow quantization_exports[] = {
    // match_quantization() emits them.
    {.op = "quantize_affine", .onnx = "QuantizeLinear", .takes = is_linear},
    {.op = "fake_quantize", .onnx = "QuantizeLinear", .takes = is_linear},
    {.op = "dequantize", .onnx = "DequantizeLinear", .takes = is_linear},
};
}  // namespace

std::span<const ExportRow> quantization_export_rows() { return quantization_exports; }

std::optional<Match> match_quantization(const Value& value) {
  const weft::Node& node = *value.node();
  const bool rounds = node.is("fake_quantize") || node.is("quantize_affine");
  if ((!rounds && !node.is("dequantize")) || !is_linear(node)) return {};
  const Shape list = list_of(node);
  std::vector<Value> operands = node.inputs;
  for (size_t i = 1; i < operands.size(); ++i) operands[i] = behind_reshapes(operands[i], list);
  return Match{operands, [value, operands, list, rounds](Emitter& to, Operands x) {
                 std::vector<Name> inputs(x.begin(), x.end());
                 for (size_t i = 1; i < inputs.size(); ++i)
                   if (!(operands[i].shape() == list))
                     inputs[i] = to.add("Reshape", {inputs[i], to.integers(extents(list))});
                 return emit(to, *value.node(), inputs, rounds);
               }};
}

}  // namespace weft::onnx
