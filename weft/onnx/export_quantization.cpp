// Exports quantization as QuantizeLinear and DequantizeLinear: one number for the whole tensor, or
// one for each place of an axis.
#include <utility>

#include "weft/onnx/emitter.h"
#include "weft/tensor/tensor.h"

namespace weft::onnx {
namespace {
using Name = std::string;

const Value& scale_of(const weft::Node& node) { return node.inputs[1]; }
DType numbers_of(const weft::Node& node) {
  if (node.is("dequantize")) return node.inputs[0].dtype();
  return static_cast<DType>(node.attrs.integer("dtype"));
}

// Returns the axis along which the scale differs; -1 where it is one number, nullopt where no
// operator has such a scale.
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
  return (dtype == DType::i8 || dtype == DType::u8) && scale_of(node).dtype() == DType::f32 &&
         floats && same_zero && node.type.elements() > 0 && scale_axis(node).has_value();
}

// Returns the value of shape `shape` behind reshapes; the value itself where there is none.
Value behind_reshapes(const Value& value, const Shape& shape) {
  for (const Value* at = &value;; at = &(*at)->inputs[0]) {
    if (at->shape() == shape) return *at;
    if (!(*at)->is("reshape")) return value;
  }
}

constexpr ExportRow rows[] = {
    // match_quantization() emits them.
    {.op = "quantize_affine", .onnx = "QuantizeLinear", .takes = is_linear},
    {.op = "fake_quantize", .onnx = "QuantizeLinear", .takes = is_linear},
    {.op = "dequantize", .onnx = "DequantizeLinear", .takes = is_linear},
};
}  // namespace

std::span<const ExportRow> quantization_export_rows() { return rows; }

std::optional<Match> match_quantization(const Value& value) {
  const weft::Node& node = *value.node();
  const bool is_fake = node.is("fake_quantize"), to_numbers = is_fake || node.is("quantize_affine");
  if ((!to_numbers && !node.is("dequantize")) || !is_linear(node)) return {};
  const int axis = *scale_axis(node);
  const Shape shape = axis < 0 ? Shape() : Shape{scale_of(node).dim(axis)};
  Match match;
  match.operands.push_back(node.inputs[0]);
  for (size_t i = 1; i < node.inputs.size(); ++i)
    match.operands.push_back(behind_reshapes(node.inputs[i], shape));
  std::vector<bool> is_list;
  for (const Value& operand : match.operands) is_list.push_back(operand.shape() == shape);
  match.emit = [&node, axis, is_fake, to_numbers, is_list = std::move(is_list)](Emitter& to,
                                                                                Operands x) {
    std::vector<Name> blocks;
    for (size_t i = 1; i < x.size(); ++i)
      blocks.push_back(
          is_list[i] ? x[i]
                     : to.add("Reshape", {x[i], to.integers(axis < 0 ? std::vector<int64_t>()
                                                                     : std::vector<int64_t>{-1})}));
    // The zero says the type of the numbers.
    if (to_numbers && blocks.size() < 2) {
      const DType dtype = numbers_of(node);
      if (axis < 0) {
        blocks.push_back(to.number(0, dtype));
      } else {
        const Shape list{to.fixed(node, axis)};
        blocks.push_back(to.constant(zeros(list, dtype), "zeros"));
      }
    }
    const Emitter::Attributes attributes =
        axis < 0 ? Emitter::Attributes{} : Emitter::Attributes{{"axis", int64_t{axis}}};
    std::vector<Name> inputs{x[0]};
    inputs.insert(inputs.end(), blocks.begin(), blocks.end());
    const Name y = to.add(to_numbers ? "QuantizeLinear" : "DequantizeLinear", inputs, attributes);
    if (!is_fake) return y;
    inputs[0] = y;
    return to.add("DequantizeLinear", inputs, attributes);
  };
  return match;
}

}  // namespace weft::onnx
