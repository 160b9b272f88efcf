#include "weft/onnx/export/emitter.h"

#include <algorithm>

#include <fmt/format.h>

#include "weft/base/error.h"
#include "weft/onnx/file/types.h"
#include "weft/tensor/tensor.h"

namespace weft::onnx {

std::string Emitter::unused_name(const std::string& wanted) {
  std::string name = wanted;
  for (int i = 1; !names_.insert(name).second; ++i) name = fmt::format("{}_{}", wanted, i);
  return name;
}

std::string Emitter::add(std::string_view op, Names inputs, Attributes attributes) {
  return add_result(op, std::move(inputs), std::move(attributes), 0);
}

std::string Emitter::add_result(std::string_view op, Names inputs, Attributes attributes,
                                size_t which) {
  // A module of an imported graph is one node, called after its operator.
  const std::string module = module_ == nullptr ? "" : *module_;
  const bool is_node = module.ends_with(op);
  std::string name = unused_name(module.empty() ? std::string(op)
                                 : is_node      ? module
                                                : fmt::format("{}/{}", module, op));
  while (!inputs.empty() && inputs.back().empty()) inputs.pop_back();
  Names outputs(which + 1);
  outputs[which] = name;
  // A TopK names both of its results.
  for (size_t i = 0; i < which; ++i) outputs[i] = unused_name(fmt::format("{}.{}", name, i));
  model_.graph.nodes.push_back({.op = std::string(op),
                                .domain = "",
                                .name = name,
                                .inputs = std::move(inputs),
                                .outputs = std::move(outputs),
                                .attributes = std::move(attributes)});
  return name;
}

std::string Emitter::cast(const std::string& x, DType from, DType to) {
  if (from == to) return x;
  for (const DType type : {from, to})
    if (type == DType::f8_e4m3 || type == DType::f8_e5m2) require(19);
  return add("Cast", {x}, {{"to", onnx_type(to)}});
}

// ---- constants

std::string Emitter::number(double value, DType dtype) {
  if (dtype == DType::i4x2) dtype = DType::u8;  // as bytes
  return constant(tensor(std::vector<double>{value}, {}, dtype));
}

std::string Emitter::integers(const std::vector<int64_t>& values) {
  const auto count = static_cast<int64_t>(values.size());
  return constant(tensor(values, {count}));
}

std::string Emitter::constant(const Tensor& value, std::string_view name) {
  value.eval();
  const Type& type = value.type();
  const std::string_view bytes(reinterpret_cast<const char*>(value->data()), type.bytes());
  std::string key = fmt::format("{} {}", to_string(type), bytes);
  if (const auto known = constants_.find(key); known != constants_.end()) return known->second;
  constexpr size_t most_in_node = 1 << 16;  // bytes; elements of an attribute cannot be external
  const bool in_node = is_float(type.dtype) && !type.shape.empty() && type.bytes() < most_in_node;
  const std::string result =
      in_node ? add("Constant", {}, {{"value", value}}) : initializer(std::string(name), value);
  return constants_[std::move(key)] = result;
}

std::string Emitter::initializer(const std::string& name, Tensor value) {
  std::string unused = unused_name(name);
  model_.graph.initializers.push_back({unused, std::move(value)});
  return unused;
}

// ---- extents

void Emitter::set_other(std::unordered_map<const weft::Node*, const weft::Node*> other,
                        int64_t batch, std::string rows_input) {
  other_ = std::move(other);
  batch_ = batch;
  rows_input_ = std::move(rows_input);
}

const weft::Node& Emitter::other(const weft::Node& node) const { return *other_.at(&node); }

int64_t Emitter::batches(const weft::Node& value, int axis) const {
  if (!is_symbolic()) return 0;
  const std::optional<int64_t> multiple =
      multiple_of_rows(value.type.shape[axis], other(value).type.shape[axis]);
  if (!multiple)
    throw NotSymbolic{fmt::format("{} has an extent that is no multiple of it", value.op->name)};
  return *multiple;
}

// Returns n where a number is n b with b rows and n (b + 1) with one row more; 0 where it is fixed.
std::optional<int64_t> Emitter::multiple_of_rows(int64_t here, int64_t there) const {
  if (here == there) return 0;
  const int64_t multiple = here / batch_;
  if (here != multiple * batch_ || there != multiple * (batch_ + 1)) return std::nullopt;
  return multiple;
}

std::string Emitter::rows() {
  if (rows_.empty())
    rows_ = add("Shape", {rows_input_}, {{"start", int64_t{0}}, {"end", int64_t{1}}});
  return rows_;
}

int64_t Emitter::fixed(const weft::Node& value, int axis) const {
  if (batches(value, axis) != 0)
    throw NotSymbolic{fmt::format("{} works along it", value.op->name)};
  return value.type.shape[axis];
}

std::string Emitter::extent(const weft::Node& value, int axis) {
  const int64_t multiple = batches(value, axis);
  if (multiple == 0) return integers({value.type.shape[axis]});
  return multiple == 1 ? rows() : add("Mul", {rows(), integers({multiple})});
}

std::string Emitter::extent_number(const weft::Node& value, int axis) {
  if (batches(value, axis) == 0)
    return number(static_cast<double>(value.type.shape[axis]), DType::i64);
  return add("Squeeze", {extent(value, axis), integers({0})});
}

std::string Emitter::shape(const weft::Node& value) { return expansion(value, {}); }

std::string Emitter::expansion(const weft::Node& to, const Shape& from) {
  const Shape& shape = to.type.shape;
  const int lead = shape.size() - from.size();
  Names parts;
  std::vector<int64_t> known;
  auto flush = [&] {
    if (!known.empty()) parts.push_back(integers(std::exchange(known, {})));
  };
  for (int axis = 0; axis < shape.size(); ++axis) {
    const bool has = axis >= lead && from[axis - lead] == shape[axis];
    if (has || batches(to, axis) == 0) {
      known.push_back(has ? 1 : shape[axis]);
      continue;
    }
    flush();
    parts.push_back(extent(to, axis));
  }
  if (parts.empty()) return integers(known);
  flush();
  return parts.size() == 1 ? parts[0] : add("Concat", parts, {{"axis", int64_t{0}}});
}

std::string Emitter::reshape(const std::string& x, const weft::Node& like) {
  const Shape& shape = like.type.shape;
  std::vector<int64_t> extents;
  bool is_empty = false;
  for (int axis = 0; axis < shape.size(); ++axis) {
    extents.push_back(batches(like, axis) == 0 ? shape[axis] : -1);
    is_empty |= shape[axis] == 0;
  }
  if (std::ranges::count(extents, -1) > 1) return add("Reshape", {x, this->shape(like)});
  Attributes attributes;
  if (is_empty) attributes["allowzero"] = int64_t{1};  // without it, 0 copies the operand's extent
  return add("Reshape", {x, integers(extents)}, attributes);
}

void Emitter::require(int64_t opset) {
  int64_t& now = model_.opsets[""];
  now = std::max(now, opset);
}

}  // namespace weft::onnx
