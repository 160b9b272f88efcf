#include "weft/quantization/layers.h"

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <utility>

#include "weft/base/error.h"
#include "weft/base/text/pattern.h"
#include "weft/base/text/suggest.h"
#include "weft/ir/op_def.h"

namespace weft::quantization {
namespace {

// A Weight is the variable behind an operand, and the axis of it that is the given axis of the
// operand.
struct Weight {
  Value leaf;
  int axis;
};

// Returns the axis of `from` that becomes `axis` of its reshape `to`; nullopt if the reshape does
// more than add or remove axes of extent 1.
std::optional<int> axis_before_reshape(const Shape& from, const Shape& to, int axis) {
  int i = 0, j = 0;
  std::optional<int> found;
  while (i < from.size() || j < to.size()) {
    if (i < from.size() && j < to.size() && from[i] == to[j]) {
      if (j == axis) found = i;
      ++i, ++j;
    } else if (i < from.size() && from[i] == 1) {
      ++i;
    } else if (j < to.size() && to[j] == 1) {
      ++j;
    } else {
      return {};
    }
  }
  return found;
}

std::optional<Weight> weight_of(Value value, int axis) {
  for (;;) {
    if (value->op->leaf == LeafKind::variable) {
      const bool is_weight = value.dtype() == DType::f32 && value.rank() > 1 &&
                             value->variable->category == Category::parameter;
      return is_weight ? std::optional(Weight{value, axis}) : std::nullopt;
    }
    if (value->is("permute")) {
      axis = static_cast<int>(value->attrs.dims("order")[axis]);
    } else if (value->is("reshape")) {
      const auto before = axis_before_reshape(value->inputs[0].shape(), value.shape(), axis);
      if (!before) return {};
      axis = *before;
    } else if (value->is("broadcast")) {
      const Shape& from = value->inputs[0].shape();
      if (from.size() != value.rank() || from[axis] != value.dim(axis)) return {};
    } else if (!value->is("slice") && value->op->scalar != ScalarOp::identity) {
      return {};
    }
    value = value->inputs[0];
  }
}

bool is_layer(const Node& node) {
  return (node.is("conv") || node.is("matmul")) && node.type.dtype == DType::f32;
}
// Returns the weight of a layer, with its output channels.
std::optional<Weight> weight_of(const Node& node) {
  if (!is_layer(node)) return {};
  const Value& operand = node.inputs[1];
  return weight_of(operand, node.is("conv") ? 0 : operand.rank() - 1);
}

// Knows which values cannot be negative, by the operations that compute them.
class Signs {
 public:
  bool is_nonnegative(const Value& value, int depth = 0) {
    const auto known = known_.find(value.node());
    if (known != known_.end()) return known->second;
    return known_[value.node()] = depth < deepest && find(*value.node(), depth + 1);
  }

 private:
  static constexpr int deepest = 64;

  bool find(const Node& node, int depth) {
    constexpr std::string_view always[] = {"relu", "sigmoid", "softplus", "softmax",
                                           "exp",  "exp2",    "abs",      "sqrt"};
    constexpr std::string_view as_operand[] = {
        "max_pool",      "avg_pool", "reshape", "permute", "broadcast", "slice", "flip",
        "stop_gradient", "cast",     "sum",     "prod",    "max",       "min",   "pad"};
    constexpr std::string_view as_all[] = {"concat", "add", "mul", "div", "minimum"};
    const auto is_one_of = [&](auto& names) {
      return std::ranges::any_of(names, [&](std::string_view name) { return node.is(name); });
    };
    const auto operand = [&](size_t i) { return is_nonnegative(node.inputs[i], depth); };
    if (is_one_of(always)) return true;
    if (is_one_of(as_operand) || node.op->scalar == ScalarOp::identity) return operand(0);
    if (node.op->leaf == LeafKind::scalar) return node.attrs.number("value") >= 0;
    if (node.is("mul") && node.inputs[0].node() == node.inputs[1].node()) return true;
    if (node.is("maximum")) return operand(0) || operand(1);
    if (node.is("clamp")) return (operand(0) || operand(1)) && operand(2);
    if (node.is("select")) return operand(1) && operand(2);
    if (!is_one_of(as_all)) return false;
    for (size_t i = 0; i < node.inputs.size(); ++i)
      if (!operand(i)) return false;
    return true;
  }

  std::unordered_map<const Node*, bool> known_;
};

std::string name_of(const Value& weight) {
  constexpr std::string_view ending = ".weight";
  const std::string& name = weight->variable->name;
  return name.ends_with(ending) ? name.substr(0, name.size() - ending.size()) : name;
}

// Rebuilds the views from `leaf` to `value` on `replacement` instead of `leaf`.
Value on(const Value& value, const Node* leaf, const Value& replacement) {
  if (value.node() == leaf) return replacement;
  return rebuild(*value.node(), {on(value->inputs[0], leaf, replacement)});
}
}  // namespace

Layers layers_of(const Graph& graph, std::vector<std::vector<Value>>* values) {
  Layers found;
  std::vector<std::vector<Value>> uses;
  Signs signs;
  std::unordered_map<const VariableState*, size_t> layers;
  std::unordered_map<const Node*, size_t> activations;
  for (const Value& value : graph.nodes()) {
    const std::optional<Weight> weight = weight_of(*value.node());
    if (!weight) continue;
    const Value& x = value->inputs[0];
    const bool is_unsigned = signs.is_nonnegative(x);
    const auto [layer, is_new] = layers.emplace(weight->leaf->variable.get(), found.layers.size());
    if (!is_new) {  // the layer runs again
      const size_t index = found.layers[layer->second].activation;
      Activation& activation = found.activations[index];
      activation.is_unsigned = activation.is_unsigned && is_unsigned;
      if (activations.emplace(x.node(), index).second) uses[index].push_back(x);
      continue;
    }
    const std::string name = name_of(weight->leaf);
    const auto [activation, unseen] = activations.emplace(x.node(), found.activations.size());
    if (unseen) {
      found.activations.push_back({name, is_unsigned});
      uses.push_back({x});
    }
    found.layers.push_back(
        {name, weight->leaf->variable, weight->axis, value->is("conv"), activation->second});
  }
  if (values != nullptr) *values = std::move(uses);
  return found;
}

std::vector<bool> layers_like(const Layers& layers, std::span<const std::string> patterns,
                              std::string_view what) {
  std::vector<bool> marked(layers.layers.size());
  for (const std::string& pattern : patterns) {
    bool found = false;
    for (size_t i = 0; i < marked.size(); ++i) {
      const Layer& layer = layers.layers[i];
      if (!matches(layer.name, pattern) && !matches(layer.weight->name, pattern)) continue;
      marked[i] = found = true;
    }
    if (found) continue;
    std::vector<std::string> names;
    for (const Layer& layer : layers.layers) names.push_back(layer.name);
    throw Error(ErrorKind::usage, "{}: no layer has a name like '{}'.{}{}", what, pattern,
                did_you_mean(pattern, names),
                marked.empty() ? "" : " The first is " + layers.layers.front().name + ".");
  }
  return marked;
}

Graph replaced(const Graph& graph, const Layers& layers, const Replacement& by) {
  std::unordered_map<const VariableState*, const Layer*> of;
  for (const Layer& layer : layers.layers) of[layer.weight.get()] = &layer;
  std::unordered_map<const Layer*, Value> weights;
  std::unordered_map<const Layer*, std::unordered_map<const Node*, Value>> inputs;
  return rewrite(graph, [&](const Value& value) -> Value {
    const std::optional<Weight> weight = weight_of(*value.node());
    if (!weight) return {};
    const auto found = of.find(weight->leaf->variable.get());
    if (found == of.end()) return {};
    const Layer& layer = *found->second;
    const auto [replacement, is_new] = weights.try_emplace(&layer);
    if (is_new) replacement->second = by.weight(layer, weight->leaf);
    if (!replacement->second.defined()) return {};
    const Value& x = value->inputs[0];
    Value& input = inputs[&layer][x.node()];
    if (!input.defined()) input = by.input(layer, x);
    std::vector<Value> operands = value->inputs;
    operands[0] = input;
    operands[1] = on(value->inputs[1], weight->leaf.node(), replacement->second);
    return rebuild(*value.node(), std::move(operands));
  });
}

// ---- arithmetic of ranges

namespace {
Tensor safe_scale(const Tensor& largest, double levels) {
  const Tensor wide = cast(largest, DType::f32);
  return select(wide > 0, wide / levels, ones_like(wide));
}
}  // namespace

Tensor weight_scales(const Tensor& weight, int channel_axis, double levels) {
  Axes others;
  for (int axis = 0; axis < weight.rank(); ++axis)
    if (axis != channel_axis) others.push_back(axis);
  return safe_scale(max(abs(weight), {.axes = others, .keepdim = true}), levels);
}

Tensor rounded(const Tensor& x, const Tensor& scale, DType dtype) {
  return fake_quantize(x, reshape(scale, Shape::filled(x.rank(), 1)), {}, dtype);
}

Tensor dynamic_scale(const Tensor& x) { return safe_scale(max(abs(x)), 127); }

}  // namespace weft::quantization
