// Two passes prepare once what a step does not assign: weights at inference. hoist_fixed() takes
// what is computed from such variables alone (the gates of a recurrent weight in another order, a
// folded batch norm) out of the step, and keeps it as state of its own (Derivation), where it takes
// no more bytes than what it is computed from. mark_fixed() marks the variables, so that kernels of
// the host may keep them packed for their loops from run to run (KernelChoice::packed_bytes), which
// saves the conversion that a step that updates its weights needs in each run. Both take memory
// beside the weights, so with a limit of memory they do nothing.
#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "weft/base/memory/storage.h"
#include "weft/ir/op_def.h"
#include "weft/ops/ops.h"
#include "weft/passes/passes.h"

namespace weft {
namespace {
using States = std::unordered_set<const VariableState*>;

std::vector<std::shared_ptr<VariableState>> variables_of(const Value& value) {
  Graph part;
  part.outputs = {value};
  std::vector<std::shared_ptr<VariableState>> variables;
  for (const Value& node : part.nodes())
    if (node->variable != nullptr &&
        std::ranges::find(variables, node->variable) == variables.end())
      variables.push_back(node->variable);
  return variables;
}

// Returns whether a variable may keep its elements over many steps: inputs, gradients and state of
// an optimizer that one step reads change before the next, as others write them.
bool holds_weights(const VariableState& variable) {
  return variable.category == Category::parameter || variable.category == Category::buffer_state ||
         variable.category == Category::constant;
}

// Hoisting finds the values that depend on fixed variables alone, and replaces the last ones before
// the rest of the step by derived variables.
class Hoisting {
 public:
  Hoisting(const Graph& graph, States assigned) : assigned_(std::move(assigned)) {
    for (const Value& value : graph.nodes())
      if (depends_on_fixed_alone(value)) fixed_.insert(value.node());
    for (const Value& value : graph.nodes())
      if (!fixed_.contains(value.node()))
        for (const Value& input : value->inputs) find_root(input);
  }
  Graph run(const Graph& graph) const {
    return rewrite(graph, [&](const Value& value) {
      return roots_.contains(value.node()) ? derived(value) : Value();
    });
  }

 private:
  bool depends_on_fixed_alone(const Value& value) const {
    const OpDef& op = *value->op;
    if (value->variable != nullptr)
      return holds_weights(*value->variable) && !assigned_.contains(value->variable.get());
    if (op.kind == OpKind::leaf) return op.leaf != LeafKind::input;
    const bool repeats = op.kind != OpKind::random && op.kind != OpKind::collective;
    return repeats && std::ranges::all_of(value->inputs, [&](const Value& input) {
             return fixed_.contains(input.node());
           });
  }

  // A view is read as what it is a view of.
  void find_root(const Value& value) {
    if (!fixed_.contains(value.node()) || value->op->kind == OpKind::leaf) return;
    if (value->op->view != nullptr) return find_root(value->inputs[0]);
    size_t bytes = 0;  // 0 where it is computed from constants alone
    for (const std::shared_ptr<VariableState>& variable : variables_of(value))
      bytes += variable->type.bytes();
    if (bytes > 0 && value.type().bytes() <= bytes) roots_.insert(value.node());
  }

  static Value derived(const Value& value) {
    auto state = std::make_shared<VariableState>("", value.type(), Category::constant,
                                                 std::make_shared<Storage>(value.type().bytes()));
    state->derivation = std::make_shared<Derivation>(Derivation{value, variables_of(value)});
    state->name = state->derivation->sources.front()->name;
    return variable_leaf(std::move(state));
  }

  const States assigned_;
  std::unordered_set<const Node*> fixed_, roots_;
};

States assigned_by(const Graph& graph) {
  States assigned;
  for (const auto& [variable, value] : graph.assignments) assigned.insert(variable->variable.get());
  return assigned;
}

bool has_room(const PassOptions& options) {
  const bool on_host = options.library != nullptr && options.library->on_host();
  return on_host && options.step.memory == 0 && !options.may_drop();
}
bool may_derive(const PassOptions& options) {
  return options.step.derive_weights && !options.step.store_every_value && has_room(options);
}
bool may_pack(const PassOptions& options) {
  return options.step.pack_weights && !options.step.store_every_value && has_room(options);
}
}  // namespace

Graph hoist_fixed(const Graph& graph, const PassOptions& options) {
  return may_derive(options) ? Hoisting(graph, assigned_by(graph)).run(graph) : graph;
}

Graph mark_fixed(const Graph& graph, const PassOptions& options) {
  if (!may_pack(options)) return graph;
  const States assigned = assigned_by(graph);
  std::unordered_map<const Node*, Value> marked;
  return rewrite(graph, [&](const Value& value) -> Value {
    const VariableState* state = value->variable.get();
    if (state == nullptr || !holds_weights(*state) || assigned.contains(state) ||
        assigned.contains(state->copy_of.get()))
      return {};
    Value& leaf = marked[value.node()];
    if (!leaf.defined()) {
      leaf = variable_leaf(value->variable, value.shape());
      leaf->annotations.fixed = true;
    }
    return leaf;
  });
}

}  // namespace weft
