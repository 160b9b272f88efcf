// Activation compression: what the backward pass reads of the forward pass is stored in a narrower
// type, rounded where it is computed and widened where it is read, so that half of its bytes stay
// live in between. The forward pass reads unrounded values, so the loss changes by the order of its
// sums alone; gradients are those of rounded activations (Chakrabarti and Moseley 2019). An
// expression of one compressed value is recomputed from it, and so are reductions of its rows, so
// that a softmax sums to one. Reductions across rows (a batch norm's) are not compressed.
#include <unordered_map>

#include "weft/ir/op_def.h"
#include "weft/ops/ops.h"
#include "weft/passes/passes.h"

namespace weft {
namespace {
// Returns whether the reduced axes are innermost: each result depends on one contiguous row.
bool reduces_rows(const Node& node) {
  const Dims& axes = node.attrs.dims("axes");
  for (int i = 0; i < axes.size(); ++i)
    if (axes[i] != node.type.shape.size() - axes.size() + i) return false;
  return true;
}

class ActivationCompressor {
 public:
  explicit ActivationCompressor(const PassOptions& options)
      : type_(options.step.activations), wrong_(options.has_fault("compression-negates")) {}

  Graph run(const Graph& graph) {
    for (const Value& value : graph.nodes()) {
      const Node* node = value.node();
      OriginOverride origin(node->origin);
      stored_[node] = stored_value_of(*node);
      now_[node] = with_inputs(value, [&](const Value& input) {
        return node->origin.backward ? late(input) : now_.at(input.node());
      });
      if (stored_[node] == node) narrow_forms_[node] = narrowed(now_[node]);
    }
    Graph result{.inputs = graph.inputs, .outputs = {}, .assignments = {}};
    for (const Value& output : graph.outputs) result.outputs.push_back(now_.at(output.node()));
    for (const auto& [variable, value] : graph.assignments)
      result.assignments.push_back({variable, now_.at(value.node())});
    return result;
  }

 private:
  // Rebuilds nodes even if nothing changes, so that new ids follow the order of computation.
  template <class Form>
  Value with_inputs(const Value& value, Form form) const {
    if (value->op->kind == OpKind::leaf) return value;
    std::vector<Value> inputs;
    for (const Value& input : value->inputs) inputs.push_back(form(input));
    Value same = rebuild(*value.node(), std::move(inputs));
    carry_composite(*value.node(), same, [&](const Value& operand) {
      return now_.contains(operand.node()) ? form(operand) : Value();
    });
    return same;
  }

  // Returns the one stored value from which this one is cheap to compute: the node itself, or that
  // of its operands. Returns null where nothing is compressed for it.
  const Node* stored_value_of(const Node& node) const {
    const OpKind kind = node.op->kind;
    if (node.origin.backward || kind == OpKind::leaf || kind == OpKind::random) return nullptr;
    if (kind == OpKind::reduce)
      return reduces_rows(node) ? stored_.at(node.inputs[0].node()) : nullptr;
    const Node* self = node.type.dtype == DType::f32 ? &node : nullptr;
    if (kind != OpKind::elementwise && kind != OpKind::movement) return self;
    const Node* only = nullptr;
    for (const Value& input : node.inputs) {
      const Node* of = stored_.at(input.node());
      if (of == nullptr || of == only) continue;
      if (only != nullptr) return self;
      only = of;
    }
    return only;
  }

  // Returns the value as the backward pass reads it.
  Value late(const Value& value) {
    const Node* stored = stored_.at(value.node());
    if (stored == nullptr) return now_.at(value.node());
    if (auto known = late_.find(value.node()); known != late_.end()) return known->second;
    OriginOverride origin(value->origin);
    return late_[value.node()] =
               stored == value.node()
                   ? cast(narrow_forms_.at(stored), DType::f32)
                   : with_inputs(value, [&](const Value& input) { return late(input); });
  }
  Value narrowed(const Value& value) const {
    return make_node(op("cast"), {wrong_ ? neg(value) : value},
                     {{"dtype", static_cast<int64_t>(type_)}}, {.compressed = true});
  }

  DType type_;
  bool wrong_;
  std::unordered_map<const Node*, const Node*> stored_;
  std::unordered_map<const Node*, Value> now_, narrow_forms_, late_;
};
}  // namespace

// Fault "compression-negates": compressed activations have the wrong sign.
Graph compression(const Graph& graph, const PassOptions& options) {
  return options.step.activations == DType::f32 ? graph : ActivationCompressor(options).run(graph);
}

}  // namespace weft
