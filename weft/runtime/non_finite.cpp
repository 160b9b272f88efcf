#include "weft/runtime/non_finite.h"

#include <algorithm>
#include <cmath>

#include "weft/base/memory/buffer.h"
#include "weft/base/memory/storage.h"
#include "weft/runtime/executable.h"

namespace weft {
namespace {
// Returns the range of the elements at `place`, with `data` as the address of the slot.
ValueRange range_of(const std::byte* data, const Type& type, const Placement& place) {
  ValueRange range;
  if (!is_float(type.dtype)) return range;
  Dims index = Dims::filled(type.shape.size(), 0);
  for (int64_t left = type.elements(); left > 0; --left) {
    int64_t element = place.offset;
    for (int i = 0; i < index.size(); ++i) element += index[i] * place.strides[i];
    range.include(load(data, type.dtype, element));
    for (int i = index.size(); i-- > 0;) {
      if (++index[i] < type.shape[i]) break;
      index[i] = 0;
    }
  }
  return range;
}
ValueRange range_of(const std::byte* data, const Type& type) {
  return range_of(data, type, {-1, 0, row_major_strides(type.shape)});
}
}  // namespace

void ValueRange::include(double element) {
  if (std::isnan(element)) {
    ++nans;
  } else if (std::isinf(element)) {
    ++infinities;
  } else {
    low = std::min(low, element);
    high = std::max(high, element);
  }
}

void ValueRange::include(const ValueRange& other) {
  low = std::min(low, other.low);
  high = std::max(high, other.high);
  nans += other.nans;
  infinities += other.infinities;
}

// Notes the ranges of inputs and variables, which the step may overwrite.
void NonFiniteSearch::read_leaves(const Executable& executable, std::span<const Value> inputs) {
  stored_.clear();
  known_.clear();
  state_.clear();
  inputs_.clear();
  for (const Value& input : inputs) inputs_.push_back(range_of(input.eval()->data(), input.type()));
  const BoundPlan& bound = executable.bound();
  for (const Slot& slot : bound.plan.slots)
    if (slot.space != Space::arena && slot.variable >= 0) {
      VariableState& state = *bound.bindings.variable(slot);
      state_[&state] = range_of(state.storage->on_host().data, state.type);
    }
}

void NonFiniteSearch::run(Executable& executable, std::span<const Value> inputs) {
  executable.settle_variables();
  read_leaves(executable, inputs);
  const Plan& plan = executable.plan();
  executable.set_observer([&](size_t launch) {
    if (plan.launches[launch].kind == Launch::Kind::transfer) return;  // checked when computed
    for (const Access& result : plan.launches[launch].results)
      stored_[result.value->id] =
          range_of(executable.address(result.at.slot), result.value.type(), result.at);
  });
  executable.run(inputs);
  executable.set_observer({});
  outputs_.clear();
  assigned_.clear();
  for (const Access& output : plan.outputs) outputs_.push_back(output.value->id);
  for (const Assign& assign : plan.assigns) assigned_.push_back(assign.value.value->id);
  follow(executable.bound().graph);
  for (const Assign& assign : plan.assigns) {
    const Slot& slot = plan.slots[static_cast<size_t>(assign.state_slot)];
    state_origin_[executable.bound().bindings.variable(slot)] =
        known_.at(assign.value.value->id).origin;
  }
}

// Visits inputs before users, so that origins propagate along with non-finite values.
void NonFiniteSearch::follow(const Graph& graph) {
  for (const Value& value : graph.nodes()) known_[value->id] = known_of(value);
}

NonFiniteSearch::Known NonFiniteSearch::leaf(const Value& value) const {
  Known known{.id = value->id};
  const LeafKind kind = value->op->leaf;
  if (kind == LeafKind::scalar) known.range.include(value->attrs.number("value"));
  if (kind == LeafKind::data) known.range = range_of(value->data(), value.type());
  if (kind == LeafKind::input)
    known.range = inputs_.at(static_cast<size_t>(value->attrs.integer("index")));
  if (kind == LeafKind::variable)
    if (auto state = state_.find(value->variable.get()); state != state_.end())
      known.range = state->second;
  const bool constant = kind != LeafKind::input && kind != LeafKind::variable;
  if (known.range.finite() || constant) return known;
  if (value->variable != nullptr)
    if (auto earlier = state_origin_.find(value->variable.get()); earlier != state_origin_.end()) {
      known.origin = earlier->second;
      return known;
    }
  const std::string& name = value->variable != nullptr ? value->variable->name : value->module();
  known.origin =
      std::make_shared<NonFiniteOrigin>(NonFiniteOrigin{.op = std::string(value->op->name),
                                                        .module = name,
                                                        .type = value.type(),
                                                        .range = known.range,
                                                        .leaf = kind});
  return known;
}

NonFiniteSearch::Known NonFiniteSearch::known_of(const Value& value) const {
  if (value->op->kind == OpKind::leaf) return leaf(value);
  ValueRange operands;
  for (const Value& input : value->inputs) operands.include(known_.at(input->id).range);
  auto stored = stored_.find(value->id);
  Known known{.range = stored != stored_.end() ? stored->second : operands, .id = value->id};
  if (known.range.finite()) return known;
  // A NaN comes from an operand with a NaN if there is one, otherwise from an infinity.
  const bool nan_from_nan = known.range.nans > 0 && operands.nans > 0;
  const Known* first = nullptr;
  for (const Value& input : value->inputs) {
    const Known& of = known_.at(input->id);
    if (of.origin == nullptr || (nan_from_nan && of.range.nans == 0)) continue;
    if (first == nullptr || of.id < first->id) first = &of;
  }
  if (first != nullptr) {
    known.origin = first->origin;
    known.id = first->id;
    return known;
  }
  const bool made = known.range.nans > 0 ? operands.nans == 0 : operands.infinities == 0;
  if (!made) return known;  // from constants
  const UserLocation& where = value->origin.where;
  NonFiniteOrigin origin{.op = std::string(value->op->name),
                         .module = value->module(),
                         .file = where.file != nullptr ? where.file : "",
                         .line = where.line,
                         .type = value.type(),
                         .range = known.range};
  for (const Value& input : value->inputs)
    origin.operands.push_back({input.type(), known_.at(input->id).range});
  known.origin = std::make_shared<NonFiniteOrigin>(std::move(origin));
  return known;
}

std::optional<NonFiniteOrigin> NonFiniteSearch::of_output(size_t index) const {
  const Origin& origin = known_.at(outputs_.at(index)).origin;
  return origin == nullptr ? std::nullopt : std::optional(*origin);
}

std::optional<NonFiniteOrigin> NonFiniteSearch::of_state() const {
  const Known* first = nullptr;
  for (const uint64_t id : assigned_) {
    const Known& known = known_.at(id);
    if (known.origin != nullptr && (first == nullptr || known.id < first->id)) first = &known;
  }
  return first == nullptr ? std::nullopt : std::optional(*first->origin);
}

}  // namespace weft
