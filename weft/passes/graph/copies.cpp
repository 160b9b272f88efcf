// Weights that products read in a narrower type are also stored in that type, beside their float32
// master weights (Micikevicius et al. 2018): the kernel that updates a weight also writes its copy,
// which saves the casts. A copy is state and takes as many bytes as the cast would take in the
// arena while it is live, so with a memory limit weights are cast where they are read. Other
// writers of the weight (a program, a checkpoint) make the copy stale, and the runtime refreshes it
// before it is read (runtime/copies.h). On the host, a step that reads and updates a weight casts
// it instead: all cores have just read the copy, so each store would wait for their cache lines to
// be invalidated.
#include <unordered_map>
#include <unordered_set>

#include "weft/ir/op_def.h"
#include "weft/ops/ops.h"
#include "weft/passes/passes.h"

namespace weft {
namespace {
bool is_weight(const Value& value) {
  return value->variable != nullptr && value->variable->category == Category::parameter &&
         value.dtype() == DType::f32;
}
// Returns the bytes with the outermost extent rounded up, the padding that products may ask for.
size_t bytes_with_room(Type type) {
  if (type.shape.size() > 1) type.shape[0] = padded_row(type.shape[0], type.dtype);
  return type.bytes();
}
}  // namespace

// Fault "copies-lag": the update writes the old value of the weight to the copy.
Graph narrow_copies(const Graph& graph, const PassOptions& options) {
  const DType narrow = product_type(options.step.precision);
  if (size_of(narrow) != 2 || options.step.memory > 0 || options.may_drop() ||
      options.step.store_every_value)
    return graph;
  std::unordered_map<const VariableState*, Value> leaves;  // leaves of copies
  auto leaf = [&](const std::shared_ptr<VariableState>& copy) {
    Value& known = leaves[copy.get()];
    if (!known.defined()) known = variable_leaf(copy);
    return known;
  };
  std::unordered_set<const VariableState*> updated, cast_here;
  if (options.library != nullptr && options.library->on_host())
    for (const auto& [variable, value] : graph.assignments)
      updated.insert(variable->variable.get());
  Graph result = rewrite(graph, [&](const Value& value) -> Value {
    const bool narrows = value->op->scalar == ScalarOp::cast && value.dtype() == narrow;
    if (!narrows || !is_weight(value->inputs[0])) return {};
    const std::shared_ptr<VariableState>& weight = value->inputs[0]->variable;
    if (!weight->layout.splits.empty()) return {};  // a rank has a part, which it gathers
    if (!updated.contains(weight.get()))
      return leaf(copy_in(weight, narrow, bytes_with_room(value.type())));
    cast_here.insert(weight.get());
    return {};
  });
  const size_t count = result.assignments.size();
  for (size_t i = 0; i < count; ++i) {
    const auto [variable, value] = result.assignments[i];
    if (cast_here.contains(variable->variable.get())) continue;
    for (const std::shared_ptr<VariableState>& copy : copies_of(*variable->variable)) {
      if (copy->type.dtype != narrow) continue;
      const OriginOverride origin(value->origin);
      const Value& written = options.has_fault("copies-lag") ? variable : value;
      result.assignments.push_back({leaf(copy), cast(written, narrow)});
    }
  }
  return result;
}

}  // namespace weft
