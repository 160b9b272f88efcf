#include "weft/ir/bindings.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "weft/ir/op_def.h"

namespace weft {
namespace {
// A Copier copies the nodes that the launch of one body looks at.
class Copier {
 public:
  Copier() = default;
  explicit Copier(const std::vector<Value>& body) {
    for (const Value& value : body) inside_.insert(value.node());
  }

  Value copy(const Value& value) {
    if (!value.defined()) return {};
    if (const auto known = copies_.find(value.node()); known != copies_.end()) return known->second;
    const Node& node = *value.node();
    const bool is_whole = inside_.contains(&node) || leads_to_operand(node);
    Value copy = leaf_of(node);
    if (is_whole) take_inputs(*copy.node(), node);
    if (!is_whole && node.op->kind != OpKind::leaf) copy->op = &op("data"), copy->attrs = {};
    if (inside_.contains(&node)) copy->annotations.composite = whole(node.annotations.composite);
    return copies_[&node] = copy;
  }
  void copy_all(std::vector<Access>& accesses) {
    for (Access& access : accesses) access.value = copy(access.value);
  }

  // Returns a copy without inputs, of the same operation.
  static Value leaf_of(const Node& node) {
    auto copy = std::make_shared<Node>();
    copy->op = node.op;
    copy->id = node.id;
    copy->attrs = node.attrs;
    copy->annotations = node.annotations;
    copy->annotations.composite = {};
    copy->type = node.type;
    copy->origin = node.origin;
    return Value(std::move(copy));
  }

 private:
  // Kernels look through views and casts for the layout and the type that an operand has below, and
  // verify() through copies for the value that they hold.
  static bool leads_to_operand(const Node& node) {
    return node.op->kind == OpKind::movement || node.op->scalar == ScalarOp::cast ||
           node.op->scalar == ScalarOp::identity;
  }
  void take_inputs(Node& copy, const Node& node) {
    copy.inputs.reserve(node.inputs.size());
    for (const Value& input : node.inputs) copy.inputs.push_back(this->copy(input));
  }
  Value whole(const Value& composite) {
    if (!composite.defined()) return {};
    Value& copy = composites_[composite.node()];
    if (copy.defined()) return copy;
    copy = leaf_of(*composite.node());
    take_inputs(*copy.node(), *composite.node());
    return copy;
  }

  std::unordered_set<const Node*> inside_;
  std::unordered_map<const Node*, Value> copies_, composites_;
};

void detach(Launch& launch) {
  Copier copier(launch.body);
  for (Value& value : launch.body) value = copier.copy(value);
  copier.copy_all(launch.operands);
  copier.copy_all(launch.results);
}

// Sets the variables of a plan from the state of one of them, and of those that it is made from.
void bind(int index, const std::shared_ptr<VariableState>& state, const Plan& plan,
          Bindings& bindings) {
  std::shared_ptr<VariableState>& bound = bindings.variables[static_cast<size_t>(index)];
  if (bound != nullptr) return;
  bound = state;
  const PlanVariable& variable = plan.variables[static_cast<size_t>(index)];
  if (variable.copy_of >= 0) bind(variable.copy_of, state->copy_of, plan, bindings);
  for (size_t i = 0; i < variable.sources.size(); ++i)
    bind(variable.sources[i], state->derivation->sources[i], plan, bindings);
}
}  // namespace

int index_of(const VariableState& variable, std::vector<PlanVariable>& variables) {
  const auto known = std::ranges::find(variables, variable.id, &PlanVariable::id);
  if (known != variables.end()) return static_cast<int>(known - variables.begin());
  PlanVariable added{.name = variable.name,
                     .type = variable.type,
                     .category = variable.category,
                     .id = variable.id};
  if (variable.copy_of != nullptr) added.copy_of = index_of(*variable.copy_of, variables);
  if (variable.derivation != nullptr)
    for (const auto& source : variable.derivation->sources)
      added.sources.push_back(index_of(*source, variables));
  variables.push_back(std::move(added));
  return static_cast<int>(variables.size()) - 1;
}

BoundPlan detached(Plan plan) {
  Bindings bindings;
  bindings.variables.resize(plan.variables.size());
  bindings.constants.resize(plan.slots.size());
  for (size_t i = 0; i < plan.slots.size(); ++i) {
    Slot& slot = plan.slots[i];
    if (!slot.value.defined()) continue;
    if (slot.variable >= 0) bind(slot.variable, slot.value->variable, plan, bindings);
    if (slot.space == Space::constant) bindings.constants[i] = slot.value->storage;
    slot.value = Copier::leaf_of(*slot.value.node());
  }
  for (Launch& launch : plan.launches) detach(launch);
  Copier outside;
  outside.copy_all(plan.inputs);
  outside.copy_all(plan.outputs);
  for (Assign& assign : plan.assigns) assign.value.value = outside.copy(assign.value.value);
  return {std::move(plan), std::move(bindings)};
}

}  // namespace weft
