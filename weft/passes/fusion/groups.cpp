#include "weft/passes/fusion/groups.h"

#include <algorithm>
#include <queue>
#include <unordered_set>
#include <utility>

#include "weft/ir/op_def.h"
#include "weft/passes/graph/index.h"

namespace weft {
namespace {
constexpr size_t most_selected = 4;  // parts that a kernel selects from, element by element

bool contains(const std::vector<int>& groups, int group) {
  return std::ranges::find(groups, group) != groups.end();
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

Shape reduced_shape(const FusionGroup& group) {
  Shape shape = group.space;
  for (int64_t axis : group.reduced) shape[static_cast<int>(axis)] = 1;
  return shape;
}

bool reduces(const FusionGroup& group) {
  return std::ranges::any_of(group.nodes,
                             [](const Value& value) { return value->op->kind == OpKind::reduce; });
}

void sort_nodes(FusionGroup& group) {
  const auto first = group.nodes.begin() + (group.kind == FusionGroup::Kind::library ? 1 : 0);
  std::sort(first, group.nodes.end(), [](const Value& a, const Value& b) { return a->id < b->id; });
}

FusionGroups::FusionGroups(const Uses& uses, const PassOptions& options, bool exact)
    : uses_(uses), options_(options), exact_(exact), places_(uses.nodes().size()) {
  for (const Value& value : uses.nodes()) places_[value.node()].kind = kind_of(*value.node());
}

FusionGroup::Kind FusionGroups::kind_of(const Node& node) const {
  const KernelLibrary& library = *options_.library;
  if (node.op->kind == OpKind::leaf && !is_constant(node)) return FusionGroup::Kind::leaf;
  if (node.op->view != nullptr) return FusionGroup::Kind::view;
  if (node.op->kind == OpKind::collective) return FusionGroup::Kind::library;
  if (library.kernels().choose(node, dense(node.inputs))) return FusionGroup::Kind::library;
  if (node.op->kind == OpKind::movement && node.op->arity < 0 && is_placed(node))
    return FusionGroup::Kind::placed;
  WEFT_ASSERT(library.compiler().generates(), "{} has no kernel for {}", library.name(),
              node.op->name);
  return FusionGroup::Kind::fused;
}
// Returns whether each part can be computed in place, or there are too many to select from.
bool FusionGroups::is_placed(const Node& concat) const {
  return concat.inputs.size() > most_selected ||
         std::ranges::all_of(concat.inputs, [&](const Value& part) {
           const Node* node = before_reshapes(part);
           const bool computed = fusable(node) || kind(node) == FusionGroup::Kind::library;
           return computed && !is_constant(*node) && uses_.count(node) == 1;
         });
}

// Searches the shorter list: a kernel has few nodes, but every kernel may hold the same constant.
bool FusionGroups::holds(int group, const Node* node) const {
  const std::vector<int>& groups = holders(node);
  const std::vector<Value>& nodes = groups_[index(group)].nodes;
  return groups.size() <= nodes.size()
             ? contains(groups, group)
             : std::ranges::find(nodes, node, &Value::node) != nodes.end();
}

int FusionGroups::add(const Value& value) {
  const bool reduces = value->op->kind == OpKind::reduce;
  FusionGroup group{
      .kind = kind(value.node()), .space = value.shape(), .reduced = {}, .nodes = {value}};
  if (reduces) {
    group.space = value->inputs[0].shape();
    group.reduced = value->attrs.dims("axes");
  }
  groups_.push_back(std::move(group));
  ids_.push_back({value->id, value->id});
  merged_into_.push_back(count() - 1);
  places_.at(value.node()).holders.push_back(count() - 1);
  return count() - 1;
}
void FusionGroups::join(const Value& value, int group) {
  groups_[index(group)].nodes.push_back(value);
  places_.at(value.node()).holders.push_back(group);
  Ids& ids = ids_[index(group)];
  ids.first = std::min(ids.first, value->id);
  ids.last = std::max(ids.last, value->id);
}
void FusionGroups::reduce_over(int group, const Shape& space, const Dims& axes) {
  groups_[index(group)].space = space;
  groups_[index(group)].reduced = axes;
}
void FusionGroups::store(const Value& value, int group) {
  places_.at(value.node()).home = group;
  uint64_t& first = ids_[index(group)].first_stored;
  first = std::min(first, value->id);
}
void FusionGroups::unstore(const Node* node) {
  const int group = std::exchange(places_.at(node).home, -1);
  if (groups_[index(group)].kind != FusionGroup::Kind::view) return;
  groups_[index(group)].nodes.clear();
  std::erase(places_.at(node).holders, group);
}

void FusionGroups::merge(int into, int from) {
  std::vector<Value> within;  // views that the groups have of each other's values
  for (int group : {into, from})
    for (const Value& member : groups_[index(group)].nodes)
      for (const Value& input : member->inputs)
        if (!holds(into, input.node()) && !holds(from, input.node()) &&
            lives_within(*input.node(), into, from))
          within.push_back(input);
  move(std::vector(groups_[index(from)].nodes), from, into);
  for (const Value& view : within)
    if (!holds(into, view.node())) join(view, into);
  merged_into_[index(from)] = into;
}
void FusionGroups::refuse(const Value& value, int group, FusionRefusal reason) {
  refusals_[value.node()].emplace_back(group, reason);
}
FusionRefusal FusionGroups::refusal_of(const Node* input, int group) const {
  if (!options_.fuses()) return FusionRefusal::none;
  const auto gathers = [&](const Node* user) { return reads_memory(*user) && holds(group, user); };
  if (std::ranges::any_of(uses_.of(input), gathers)) return FusionRefusal::gathered;
  if (!fusable(input)) return FusionRefusal::other_axes;
  FusionRefusal first = FusionRefusal::stored;
  if (const auto* reasons = refusals_.find(input))
    for (auto [at, reason] : *reasons) {
      while (merged_into_[index(at)] != at) at = merged_into_[index(at)];
      if (at == group) first = std::min(first, reason);
    }
  return first;
}
void FusionGroups::move(std::span<const Value> part, int from, int into) {
  for (const Value& value : part) {
    std::erase(places_.at(value.node()).holders, from);
    if (!holds(into, value.node())) join(value, into);
    if (home(value.node()) == from) store(value, into);
  }
  std::vector<Value>& left = groups_[index(from)].nodes;
  std::erase_if(left, [&](const Value& value) {
    return std::ranges::find(part, value.node(), &Value::node) != part.end();
  });
  for (const Value& value : std::vector(left))
    for (const Value& input : value->inputs)
      if (is_constant(*input.node()) && !holds(from, input.node())) join(input, from);
}

bool FusionGroups::gathers_from(const Node& user, const Node* value) {
  if (user.op->kind != OpKind::gather) return reads_memory(user);
  const bool adds = user.op->combine != ScalarOp::none;  // to rows that it keeps in place
  return !adds && user.inputs[0].node() == value;
}
// Returns the readers of what `group` stores. As if `a` and `b` were merged, values that live
// within both need no read from memory, but by what gathers from them.
std::vector<int> FusionGroups::readers_of(int group, int a, int b) const {
  std::vector<int> readers;
  for (const Value& member : groups_[index(group)].nodes) {
    if (home(member.node()) != group) continue;
    const bool inside = lives_within(*member.node(), a, b);
    for (const Node* user : uses_.of(member.node()))
      for (int next : holders(user)) {
        const bool joined = next == a || next == b;
        if (joined ? !inside || gathers_from(*user, member.node())
                   : next != group && !holds(next, member.node()))
          readers.push_back(next);
      }
  }
  return readers;
}
// Searches for a path to the merged group of `a` and `b`. The latest group is visited first,
// because values that the backward pass reads are shortcuts. Groups that store nothing before the
// target's last node can lead back only through a group that straddles it. That is rare, so the
// search stops there and fuse() verifies the result.
bool FusionGroups::leads_to(std::span<const int> from, int a, int b, uint64_t last) const {
  if (options_.has_fault("fuse-ignores-cycles")) return false;
  std::unordered_set<int> seen;
  std::priority_queue<std::pair<uint64_t, int>> pending;
  auto reach = [&](std::span<const int> groups) {
    for (int group : groups)
      if (seen.insert(group).second) pending.emplace(ids_[index(group)].first_stored, group);
  };
  for (reach(from); !pending.empty();) {
    const auto [first_stored, group] = pending.top();
    pending.pop();
    if (group == a || group == b) return true;
    if (exact_ || first_stored <= last) reach(a == b ? readers_of(group) : readers_of(group, a, b));
  }
  return false;
}
bool FusionGroups::merging_makes_cycle(int a, int b) const {
  const auto leads = [&](int from, int to) {
    return !reads_all_of(from, to) && leads_to(readers_of(from, a, b), a, b, ids_[index(to)].last);
  };
  return leads(a, b) || leads(b, a);
}
// Returns whether `other` reads nothing but operands of `group`. No path then leads from `group` to
// `other`, as it would lead back to `group` itself.
bool FusionGroups::reads_all_of(int group, int other) const {
  NodeMap<bool> own;
  for (const Value& member : groups_[index(group)].nodes)
    for (const Value& input : member->inputs)
      if (const Node* base = before_views(input.node()); !holds(group, base))
        own.insert(base, true);
  return std::ranges::all_of(groups_[index(other)].nodes, [&](const Value& member) {
    return std::ranges::all_of(member->inputs, [&](const Value& input) {
      return holds(other, input.node()) || own.contains(before_views(input.node()));
    });
  });
}
const Node* FusionGroups::before_views(const Node* node) const {
  while (kind(node) == FusionGroup::Kind::view) node = node->inputs[0].node();
  return node;
}
// Returns whether a kernel merged from both would hold the node: it is in one of them, or
// broadcasts such a value over the rows.
bool FusionGroups::lives_within(const Node& node, int a, int b) const {
  if (holds(a, &node) || holds(b, &node)) return true;
  if (!is_broadcast(node) || node.type.shape != groups_[index(a)].space) return false;
  const Value& small = node.inputs[0];
  const auto spans_rows = [&](const FusionGroup& group) {
    return small.shape() == reduced_shape(group) &&
           is_row(group.space, group.reduced, options_.threads);
  };
  return (spans_rows(groups_[index(a)]) || spans_rows(groups_[index(b)])) &&
         (holds(a, small.node()) || holds(b, small.node()));
}

Fusion FusionGroups::finish() {
  Fusion fusion;
  std::vector<int> moved(groups_.size(), -1);
  for (size_t u = 0; u < moved.size(); ++u) {
    if (groups_[u].nodes.empty()) continue;
    moved[u] = static_cast<int>(fusion.groups.size());
    sort_nodes(groups_[u]);
    if (groups_[u].kind == FusionGroup::Kind::fused)
      for (const Value& input : groups_[u].inputs()) {
        const FusionGroup::Kind maker = kind(before_views(input.node()));
        if (maker == FusionGroup::Kind::fused || maker == FusionGroup::Kind::placed)
          groups_[u].unfused.push_back({input->id, refusal_of(input.node(), static_cast<int>(u))});
      }
    FusionGroup& group = fusion.groups.emplace_back(std::move(groups_[u]));
    if (!reduces(group)) group.reduced = {};
  }
  fusion.home.reserve(uses_.nodes().size());
  for (const Value& value : uses_.nodes())
    if (const int stored = home(value.node()); stored >= 0)
      fusion.home[value.node()] = moved[index(stored)];
  return fusion;
}
}  // namespace weft
