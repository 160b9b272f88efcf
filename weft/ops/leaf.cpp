// Defines the leaves of a graph: inputs, variables, data, scalars and iotas.
#include <algorithm>
#include <cstring>

#include "weft/base/memory/buffer.h"
#include "weft/base/memory/storage.h"
#include "weft/ir/axis_map.h"
#include "weft/ir/graph.h"
#include "weft/ops/apply.h"

namespace weft {
namespace {
using AxisRule = AxisMap (*)(const Node& node);

const OpDef& leaf(LeafKind kind, std::string_view name, std::string_view doc, AxisRule axes) {
  return define(
      {.name = name, .kind = OpKind::leaf, .arity = 0, .doc = doc, .leaf = kind, .axes = axes});
}
// A stored leaf is whole along every axis: it is not computed in parts, and a part of it is a
// slice.
AxisMap stored(const Node& node) {
  return axis_by_axis(node, [](const Node& each, int axis) {
    return Factor{.size = each.type.shape[axis], .relation = Relation::whole};
  });
}
const OpDef& scalar_def = leaf(LeafKind::scalar, "scalar", "every element is attr value", nullptr);
const OpDef& iota_def =
    leaf(LeafKind::iota, "iota",
         "the index along attr axis; attrs offset and strides make it a part of a larger one",
         [](const Node& node) {
           AxisMap map = axis_by_axis(node, [](const Node& each, int axis) {
             return Factor{.size = each.type.shape[axis],
                           .positional = axis == each.attrs.integer("axis")};
           });
           map.has_place = true;
           return map;
         });
const OpDef& data_def = leaf(LeafKind::data, "data", "elements held in memory", stored);
const OpDef& input_def =
    leaf(LeafKind::input, "input", "bound when the graph runs (attr index)", stored);
const OpDef& variable_def =
    leaf(LeafKind::variable, "variable", "state, read at the start of a step", stored);
}  // namespace

Tensor scalar(double value, DType dtype, std::source_location where) {
  return full({}, value, dtype, where);
}
Tensor full(const Shape& shape, double value, DType dtype, std::source_location where) {
  CallSite here(where);
  return make_leaf(scalar_def, {dtype, shape}, {{"value", value}});
}
Tensor zeros(const Shape& shape, DType dtype, std::source_location where) {
  CallSite here(where);
  return full(shape, 0, dtype);
}
Tensor ones(const Shape& shape, DType dtype, std::source_location where) {
  CallSite here(where);
  return full(shape, 1, dtype);
}
Tensor zeros_like(Arg x) {
  CallSite here(x.where);
  return zeros(x.value.shape(), x.value.dtype());
}
Tensor ones_like(Arg x) {
  CallSite here(x.where);
  return ones(x.value.shape(), x.value.dtype());
}
Tensor arange(int64_t count, DType dtype, std::source_location where) {
  CallSite here(where);
  return iota({count}, 0, dtype);
}
Tensor iota(const Shape& shape, int axis, DType dtype, std::source_location where) {
  CallSite here(where);
  return make_leaf(iota_def, {dtype, shape},
                   {{"axis", int64_t{normalize_axis(axis, shape.size(), "iota")}}});
}

Tensor from_buffer(std::shared_ptr<Buffer> buffer, Type type) {
  WEFT_CHECK(buffer->bytes >= type.bytes(), "[from_buffer] {} needs {} bytes. Got {}.",
             to_string(type), type.bytes(), buffer->bytes);
  Tensor value = make_leaf(data_def, type);
  value->storage = std::make_shared<Storage>(std::move(buffer));
  return value;
}
Tensor constant(std::span<const float> elements, const Shape& shape, std::source_location where) {
  std::vector<double> wide(elements.begin(), elements.end());
  return constant(wide, shape, DType::f32, where);
}
Tensor constant(std::span<const double> elements, const Shape& shape, DType dtype,
                std::source_location where) {
  CallSite here(where);
  Type type{dtype, shape};
  WEFT_CHECK(static_cast<int64_t>(elements.size()) == type.elements(),
             "[constant] {} has {} elements. Got {}.", to_string(type), type.elements(),
             elements.size());
  auto buffer = Buffer::allocate(type.bytes());
  for (size_t i = 0; i < elements.size(); ++i)
    store(buffer->data, dtype, static_cast<int64_t>(i), elements[i]);
  return from_buffer(std::move(buffer), type);
}
Tensor input(Type type, int index) {
  return make_leaf(input_def, type, {{"index", int64_t{index}}});
}
Tensor variable_leaf(std::shared_ptr<VariableState> state) {
  const Shape whole = state->type.shape;
  return variable_leaf(std::move(state), whole);
}
Tensor variable_leaf(std::shared_ptr<VariableState> state, const Shape& part) {
  Tensor value = make_leaf(variable_def, {state->type.dtype, part});
  value->variable = std::move(state);
  return value;
}
}  // namespace weft
