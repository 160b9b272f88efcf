// Marks the variables that a step reads and does not assign: weights at inference. Kernels of the
// host may then keep them packed for their loops from run to run (KernelChoice::kept), which saves
// the conversion that a step that updates its weights needs in each run. What is packed takes
// memory beside the weights, so with a limit of memory nothing is marked. The pass runs last on the
// graph, because the passes before it match variables by their nodes.
#include <unordered_map>
#include <unordered_set>

#include "weft/ops/ops.h"
#include "weft/passes/passes.h"

namespace weft {

Graph mark_fixed(const Graph& graph, const PassOptions& options) {
  const bool can_keep = options.library != nullptr && options.library->on_host();
  if (!can_keep || options.step.memory > 0 || options.may_drop()) return graph;
  std::unordered_set<const VariableState*> assigned;
  for (const auto& [variable, value] : graph.assignments) assigned.insert(variable->variable.get());
  std::unordered_map<const Node*, Value> marked;
  return rewrite(graph, [&](const Value& value) -> Value {
    const VariableState* state = value->variable.get();
    if (state == nullptr || assigned.contains(state) || assigned.contains(state->copy_of.get()))
      return {};
    Value& leaf = marked[value.node()];
    if (!leaf.defined()) {
      leaf = variable_leaf(value->variable);
      leaf->annotations.fixed = true;
    }
    return leaf;
  });
}

}  // namespace weft
