#include "weft/passes/units.h"

#include <algorithm>
#include <queue>
#include <unordered_set>
#include <utility>

#include "weft/ir/op_def.h"
#include "weft/passes/index.h"

namespace weft {
namespace {
constexpr size_t most_selected = 4;  // parts that a kernel selects from, element by element

bool contains(const std::vector<int>& units, int unit) {
  return std::ranges::find(units, unit) != units.end();
}
}  // namespace

bool is_row(const Shape& space, const Dims& reduced, int threads) {
  int first = space.size() - reduced.size();
  int64_t rows = 1, row = 1;
  for (int i = 0; i < space.size(); ++i) {
    if (reduced.contains(i) != (i >= first)) return false;
    (i >= first ? row : rows) *= space[i];
  }
  return row <= cached_elements && rows >= 2 * threads;
}

Shape reduced_shape(const Unit& unit) {
  Shape shape = unit.space;
  for (int64_t axis : unit.reduced) shape[static_cast<int>(axis)] = 1;
  return shape;
}

bool reduces(const Unit& unit) {
  return std::ranges::any_of(unit.nodes,
                             [](const Value& value) { return value->op->kind == OpKind::reduce; });
}

void sort_nodes(Unit& unit) {
  const auto first = unit.nodes.begin() + (unit.kind == Unit::Kind::library ? 1 : 0);
  std::sort(first, unit.nodes.end(), [](const Value& a, const Value& b) { return a->id < b->id; });
}

Units::Units(const Uses& uses, const PassOptions& options, bool exact)
    : uses_(uses), options_(options), exact_(exact), places_(uses.nodes().size()) {
  for (const Value& value : uses.nodes()) places_[value.node()].kind = kind_of(*value.node());
}

Unit::Kind Units::kind_of(const Node& node) const {
  const KernelLibrary& library = *options_.library;
  if (node.op->kind == OpKind::leaf && !is_constant(node)) return Unit::Kind::leaf;
  if (node.op->view != nullptr) return Unit::Kind::view;
  if (library.kernels().choose(node, dense(node.inputs))) return Unit::Kind::library;
  if (node.op->kind == OpKind::movement && node.op->arity < 0 && is_placed(node))
    return Unit::Kind::placed;
  WEFT_ASSERT(library.compiler().generates(), "{} has no kernel for {}", library.name(),
              node.op->name);
  return Unit::Kind::fused;
}
// Returns whether each part can be computed in place, or there are too many to select from.
bool Units::is_placed(const Node& concat) const {
  return concat.inputs.size() > most_selected ||
         std::ranges::all_of(concat.inputs, [&](const Value& part) {
           const Node* node = before_reshapes(part);
           const bool computed = fusable(node) || kind(node) == Unit::Kind::library;
           return computed && !is_constant(*node) && uses_.count(node) == 1;
         });
}

// Searches the shorter list: a kernel has few nodes, but every kernel may hold the same constant.
bool Units::holds(int unit, const Node* node) const {
  const std::vector<int>& units = holders(node);
  const std::vector<Value>& nodes = units_[index(unit)].nodes;
  return units.size() <= nodes.size() ? contains(units, unit)
                                      : std::ranges::find(nodes, node, &Value::node) != nodes.end();
}

int Units::add(const Value& value) {
  const bool reduces = value->op->kind == OpKind::reduce;
  Unit unit{.kind = kind(value.node()), .space = value.shape(), .reduced = {}, .nodes = {value}};
  if (reduces) {
    unit.space = value->inputs[0].shape();
    unit.reduced = value->attrs.dims("axes");
  }
  units_.push_back(std::move(unit));
  ids_.push_back({value->id, value->id});
  merged_into_.push_back(count() - 1);
  places_.at(value.node()).holders.push_back(count() - 1);
  return count() - 1;
}
void Units::join(const Value& value, int unit) {
  units_[index(unit)].nodes.push_back(value);
  places_.at(value.node()).holders.push_back(unit);
  Ids& ids = ids_[index(unit)];
  ids.first = std::min(ids.first, value->id);
  ids.last = std::max(ids.last, value->id);
}
void Units::reduce_over(int unit, const Shape& space, const Dims& axes) {
  units_[index(unit)].space = space;
  units_[index(unit)].reduced = axes;
}
void Units::store(const Value& value, int unit) {
  places_.at(value.node()).home = unit;
  uint64_t& first = ids_[index(unit)].first_stored;
  first = std::min(first, value->id);
}
void Units::unstore(const Node* node) {
  const int unit = std::exchange(places_.at(node).home, -1);
  if (units_[index(unit)].kind != Unit::Kind::view) return;
  units_[index(unit)].nodes.clear();
  std::erase(places_.at(node).holders, unit);
}

void Units::merge(int into, int from) {
  std::vector<Value> within;  // views that the groups have of each other's values
  for (int unit : {into, from})
    for (const Value& member : units_[index(unit)].nodes)
      for (const Value& input : member->inputs)
        if (!holds(into, input.node()) && !holds(from, input.node()) &&
            lives_within(*input.node(), into, from))
          within.push_back(input);
  move(std::vector(units_[index(from)].nodes), from, into);
  for (const Value& view : within)
    if (!holds(into, view.node())) join(view, into);
  merged_into_[index(from)] = into;
}
void Units::refuse(const Value& value, int unit, FusionRefusal reason) {
  refusals_[value.node()].emplace_back(unit, reason);
}
FusionRefusal Units::refusal_of(const Node* input, int unit) const {
  if (options_.skips("fuse")) return FusionRefusal::none;
  const auto gathers = [&](const Node* user) { return reads_memory(*user) && holds(unit, user); };
  if (std::ranges::any_of(uses_.of(input), gathers)) return FusionRefusal::gathered;
  if (!fusable(input)) return FusionRefusal::other_axes;
  FusionRefusal first = FusionRefusal::stored;
  if (const auto* reasons = refusals_.find(input))
    for (auto [at, reason] : *reasons) {
      while (merged_into_[index(at)] != at) at = merged_into_[index(at)];
      if (at == unit) first = std::min(first, reason);
    }
  return first;
}
void Units::move(std::span<const Value> part, int from, int into) {
  for (const Value& value : part) {
    std::erase(places_.at(value.node()).holders, from);
    if (!holds(into, value.node())) join(value, into);
    if (home(value.node()) == from) store(value, into);
  }
  std::vector<Value>& left = units_[index(from)].nodes;
  std::erase_if(left, [&](const Value& value) {
    return std::ranges::find(part, value.node(), &Value::node) != part.end();
  });
  for (const Value& value : std::vector(left))
    for (const Value& input : value->inputs)
      if (is_constant(*input.node()) && !holds(from, input.node())) join(input, from);
}

// Returns the readers of what `unit` stores. As if `a` and `b` were merged, values that live within
// both need no read from memory.
std::vector<int> Units::readers_of(int unit, int a, int b) const {
  std::vector<int> readers;
  for (const Value& member : units_[index(unit)].nodes) {
    if (home(member.node()) != unit) continue;
    const bool inside = lives_within(*member.node(), a, b);
    for (const Node* user : uses_.of(member.node()))
      for (int next : holders(user)) {
        const bool joined = next == a || next == b;
        if (joined ? !inside : next != unit && !holds(next, member.node())) readers.push_back(next);
      }
  }
  return readers;
}
// Searches for a path to the merged group of `a` and `b`. The latest group is visited first,
// because values that the backward pass reads are shortcuts. Groups that store nothing before the
// target's last node can lead back only through a group that straddles it. That is rare, so the
// search stops there and fuse() verifies the result.
bool Units::leads_to(std::span<const int> from, int a, int b, uint64_t last) const {
  if (options_.fault == "fuse-ignores-cycles") return false;
  std::unordered_set<int> seen;
  std::priority_queue<std::pair<uint64_t, int>> pending;
  auto reach = [&](std::span<const int> units) {
    for (int unit : units)
      if (seen.insert(unit).second) pending.emplace(ids_[index(unit)].first_stored, unit);
  };
  for (reach(from); !pending.empty();) {
    const auto [first_stored, unit] = pending.top();
    pending.pop();
    if (unit == a || unit == b) return true;
    if (exact_ || first_stored <= last) reach(a == b ? readers_of(unit) : readers_of(unit, a, b));
  }
  return false;
}
bool Units::merging_makes_cycle(int a, int b) const {
  const auto leads = [&](int from, int to) {
    return !reads_all_of(from, to) && leads_to(readers_of(from, a, b), a, b, ids_[index(to)].last);
  };
  return leads(a, b) || leads(b, a);
}
// Returns whether `other` reads nothing but operands of `unit`. No path then leads from `unit` to
// `other`, as it would lead back to `unit` itself.
bool Units::reads_all_of(int unit, int other) const {
  NodeMap<bool> own;
  for (const Value& member : units_[index(unit)].nodes)
    for (const Value& input : member->inputs)
      if (const Node* base = before_views(input.node()); !holds(unit, base)) own.insert(base, true);
  return std::ranges::all_of(units_[index(other)].nodes, [&](const Value& member) {
    return std::ranges::all_of(member->inputs, [&](const Value& input) {
      return holds(other, input.node()) || own.contains(before_views(input.node()));
    });
  });
}
const Node* Units::before_views(const Node* node) const {
  while (kind(node) == Unit::Kind::view) node = node->inputs[0].node();
  return node;
}
// Returns whether a kernel merged from both would hold the node: it is in one of them, or
// broadcasts such a value over the rows.
bool Units::lives_within(const Node& node, int a, int b) const {
  if (holds(a, &node) || holds(b, &node)) return true;
  if (!is_broadcast(node) || node.type.shape != units_[index(a)].space) return false;
  const Value& small = node.inputs[0];
  const auto spans_rows = [&](const Unit& unit) {
    return small.shape() == reduced_shape(unit) &&
           is_row(unit.space, unit.reduced, options_.threads);
  };
  return (spans_rows(units_[index(a)]) || spans_rows(units_[index(b)])) &&
         (holds(a, small.node()) || holds(b, small.node()));
}

Fusion Units::finish() {
  Fusion fusion;
  std::vector<int> moved(units_.size(), -1);
  for (size_t u = 0; u < moved.size(); ++u) {
    if (units_[u].nodes.empty()) continue;
    moved[u] = static_cast<int>(fusion.units.size());
    sort_nodes(units_[u]);
    if (units_[u].kind == Unit::Kind::fused)
      for (const Value& input : units_[u].inputs()) {
        const Unit::Kind maker = kind(before_views(input.node()));
        if (maker == Unit::Kind::fused || maker == Unit::Kind::placed)
          units_[u].unfused.push_back(
              {input.node(), refusal_of(input.node(), static_cast<int>(u))});
      }
    Unit& unit = fusion.units.emplace_back(std::move(units_[u]));
    if (!reduces(unit)) unit.reduced = {};
  }
  fusion.home.reserve(uses_.nodes().size());
  for (const Value& value : uses_.nodes())
    if (const int stored = home(value.node()); stored >= 0)
      fusion.home[value.node()] = moved[index(stored)];
  return fusion;
}
}  // namespace weft
