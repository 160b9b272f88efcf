#include "weft/train/methods/channel_values.h"

#include <algorithm>
#include <vector>

#include "weft/ir/op_def.h"
#include "weft/ir/variable.h"
#include "weft/tensor/tensor.h"

namespace weft::train {
namespace {
std::optional<double> if_zero(std::optional<double> x) { return x == 0.0 ? x : std::nullopt; }

// Returns the number of a leaf. A variable has one only where the pruner writes zeros: in the
// channels of parameters that train.
std::optional<double> of_leaf(const Node& node, bool has_channels) {
  if (node.variable != nullptr) {
    const bool is_pruned =
        has_channels && node.variable->category == Category::parameter && !node.variable->frozen;
    return is_pruned ? std::optional(0.0) : std::nullopt;
  }
  if (node.op->leaf == LeafKind::scalar) return node.attrs.number("value");
  if (node.op->leaf == LeafKind::data && node.type.elements() == 1 && node.has_data())
    return load(node.data(), node.type.dtype, 0);
  return std::nullopt;
}
}  // namespace

void ChannelValues::compute(const Node& node) {
  const void* const holder =
      node.variable != nullptr ? static_cast<const void*>(node.variable.get()) : &node;
  const auto groups = groups_.find(holder);
  std::set<int> of = groups == groups_.end() ? std::set<int>{none} : groups->second;
  for (const int group : of)
    if (const std::optional<double> value = computed(node, group)) known_[{holder, group}] = *value;
}

std::optional<double> ChannelValues::of(const Value& value, int group) const {
  const void* const holder = holder_(value);
  const auto groups = groups_.find(holder);
  const bool has_group = groups != groups_.end() && groups->second.contains(group);
  if (groups != groups_.end() && !has_group) return std::nullopt;
  const auto found = known_.find({holder, has_group ? group : none});
  return found == known_.end() ? std::nullopt : std::optional(found->second);
}

std::optional<double> ChannelValues::computed(const Node& node, int group) const {
  const auto operand = [&](size_t i) { return of(node.inputs[i], group); };
  switch (node.op->kind) {
    case OpKind::leaf:
      return of_leaf(node, group != none);
    case OpKind::elementwise:
      return elementwise(node, group);
    case OpKind::movement:
      if (node.op->view != nullptr) return operand(0);
      if (node.is("pad"))
        return operand(0) == node.attrs.number("value") ? operand(0) : std::nullopt;
      break;
    case OpKind::reduce:
      if (node.op->combine == ScalarOp::maximum || node.op->combine == ScalarOp::minimum)
        return operand(0);
      return node.op->combine == ScalarOp::none ? std::nullopt : if_zero(operand(0));
    case OpKind::window:
      return if_zero(operand(0));
    case OpKind::gather:
      return node.is("gather") ? operand(0) : std::nullopt;
    case OpKind::contraction:
      for (size_t i = 0; i < 2; ++i)
        if (operand(i) == 0.0) return 0.0;
      return std::nullopt;
    default:
      return std::nullopt;
  }
  // A concatenation has the number on which its operands with this group agree.
  if (!node.is("concat")) return std::nullopt;
  std::optional<double> all;
  for (const Value& input : node.inputs) {
    const auto groups = groups_.find(holder_(input));
    const bool has_group = groups != groups_.end() && groups->second.contains(group);
    if (group != none && !has_group) continue;
    const std::optional<double> value = of(input, group);
    if (!value || (all && *all != *value)) return std::nullopt;
    all = value;
  }
  return all;
}

std::optional<double> ChannelValues::elementwise(const Node& node, int group) const {
  std::vector<double> known;
  bool is_zero = false;
  for (const Value& input : node.inputs) {
    const std::optional<double> value = of(input, group);
    if (value) known.push_back(*value);
    is_zero = is_zero || value == 0.0;
  }
  const ScalarOp scalar = node.op->scalar;
  if (known.size() < node.inputs.size()) {
    // An unknown operand is taken to be finite, as weights and statistics are, and as a divisor not
    // zero.
    if (scalar == ScalarOp::mul && is_zero) return 0.0;
    if (scalar == ScalarOp::div && of(node.inputs[0], group) == 0.0) return 0.0;
    return std::nullopt;
  }
  if (scalar == ScalarOp::identity || scalar == ScalarOp::cast) return known[0];
  if (node.op->function == nullptr && node.op->oracle == nullptr) return std::nullopt;
  known.resize(3);
  return evaluate(*node.op, known[0], known[1], known[2]);
}

}  // namespace weft::train
