#include <algorithm>
#include <optional>

#include "weft/ir/op_def.h"
#include "weft/passes/fusion/groups.h"

namespace weft {
namespace {
// A Placer places values one after another, users first.
class Placer {
 public:
  Placer(FusionGroups& groups, const Uses& uses, const PassOptions& options)
      : groups_(groups), uses_(uses), options_(options), whole_(options.fuses()) {
    if (whole_)
      for (const Value& value : uses.nodes()) note_base(value);
  }

  void place(const Value& value) {
    const Node* node = value.node();
    if (!groups_.fusable(node)) {
      if (place_broadcast(value)) return;
      groups_.store(value, groups_.add(value));
      return;
    }
    const Demand need = demand(value);
    if (is_constant(*node)) return place_constant(value, need);
    if (!whole_ || is_compressed(*node) || belongs_to_library(value, need)) {
      if (is_compressed(*node))
        for (int consumer : need.consumers)
          groups_.refuse(value, consumer, FusionRefusal::compressed);
      groups_.store(value, groups_.add(value));
      return;
    }
    const bool rematerialized = recomputes(node) && !need.memory;
    size_t joined = 0;
    for (int consumer : by_first_use(need.consumers)) {
      std::optional<Dims> merged_axes;
      const FusionRefusal refusal = refuses(value, consumer, rematerialized, merged_axes);
      if (refusal != FusionRefusal::none) {
        groups_.refuse(value, consumer, refusal);
        continue;
      }
      if (merged_axes) groups_.reduce_over(consumer, value->inputs[0].shape(), *merged_axes);
      groups_.join(value, consumer);
      ++joined;
      if (!rematerialized) break;  // the first stores it, the others read it
    }
    if (joined > 0 && joined == need.consumers.size() && !need.memory) return;
    groups_.store(
        value, rematerialized || joined == 0 ? groups_.add(value) : groups_.holders(node).front());
  }

 private:
  // Records the one full-size stored value that an elementwise expression derives from: null if
  // none, the node itself if it is no such expression or derives from several.
  void note_base(const Value& value) {
    const Node* node = value.node();
    const Node* base = nullptr;
    bool expression = node->op->kind == OpKind::elementwise || node->op->kind == OpKind::random ||
                      is_constant(*node) || gathers_few(*node);
    bool several = !groups_.fusable(node) || !expression;
    for (const Value& input : node->inputs) {
      const Node* of = input.elements() < value.elements() ? nullptr : bases_.at(input.node());
      if (is_broadcast(*input.node())) of = nullptr;
      if (of == nullptr) continue;
      several |= base != nullptr && base != of;
      base = of;
    }
    bases_[node] = several ? node : base;
  }
  // Returns whether the node is larger than the cache and than what it gathers from.
  static bool gathers_few(const Node& node) {
    return node.op->kind == OpKind::gather && node.type.elements() > cached_elements &&
           node.inputs[0].elements() < node.type.elements();
  }
  // Returns whether the value is cheaper to recompute than to store: an elementwise expression of
  // at most one full-size value.
  bool recomputes(const Node* node) const {
    if (node->op->kind == OpKind::random) return true;
    return (node->op->kind == OpKind::elementwise || gathers_few(*node)) && bases_.at(node) != node;
  }

  // Demand lists the fused groups that could compute a value inline, and says whether anyone needs
  // it in memory.
  struct Demand {
    std::vector<int> consumers;
    bool memory = false;
  };
  Demand demand(const Value& value) const {
    Demand result;
    result.memory = uses_.is_root(value.node());
    for (const Node* user : uses_.of(value.node())) {
      const bool inlines = !reads_memory(*user) && user->op->kind != OpKind::random;
      for (int group : groups_.holders(user)) {
        if (!inlines || groups_[group].kind != FusionGroup::Kind::fused)
          result.memory = true;
        else if (std::ranges::find(result.consumers, group) == result.consumers.end())
          result.consumers.push_back(group);
      }
    }
    return result;
  }
  std::vector<int> by_first_use(std::vector<int> groups) const {
    std::ranges::sort(groups, {}, [&](int group) { return groups_.first_id(group); });
    return groups;
  }

  // Returns whether `value` fits the group's space, and in `merged_axes` the reduced axes that it
  // adds.
  static bool shape_fits(const Value& value, const FusionGroup& group,
                         std::optional<Dims>& merged_axes) {
    const Node& node = *value.node();
    if (node.type.shape.size() != group.space.size()) return false;
    if (node.op->kind == OpKind::reduce) {
      const Dims& axes = node.attrs.dims("axes");
      const Shape& from = node.inputs[0].shape();
      if (from == group.space && group.reduced == axes) return true;
      // A kernel over the reduced shape becomes the epilogue of this reduction.
      bool epilogue = group.reduced.empty() && group.space == node.type.shape;
      for (const Value& member : group.nodes)
        epilogue &= member->op->kind == OpKind::elementwise || is_constant(*member.node());
      if (epilogue) merged_axes = axes;
      return epilogue;
    }
    if (value.shape() == group.space) return true;
    return !group.reduced.empty() && value.shape() == reduced_shape(group);
  }
  // Returns why `value` may not join the group, or none if it may.
  FusionRefusal refuses(const Value& value, int consumer, bool rematerialized,
                        std::optional<Dims>& merged_axes) const {
    const FusionGroup& group = groups_[consumer];
    if (!shape_fits(value, group, merged_axes)) return FusionRefusal::other_axes;
    if (group.nodes.size() >= largest_kernel) return FusionRefusal::too_large;
    if (rematerialized || !leads_back(value.node(), consumer)) return FusionRefusal::none;
    return reads_view_of(value.node(), group) ? FusionRefusal::other_axes : FusionRefusal::cycle;
  }
  bool reads_view_of(const Node* node, const FusionGroup& group) const {
    return std::ranges::any_of(group.nodes, [&](const Value& member) {
      return std::ranges::any_of(member->inputs, [&](const Value& input) {
        return input.node() != node && groups_.before_views(input.node()) == node;
      });
    });
  }
  // Returns whether `node` must not join `target`: a path leads from a user of it outside back into
  // `target`, or a user inside reads it from memory, as a gather does, before the kernel stores it.
  bool leads_back(const Node* node, int target) const {
    const auto users = uses_.of(node);
    std::vector<int> others;
    for (const Node* user : users)
      for (int group : groups_.holders(user)) {
        if (group != target)
          others.push_back(group);
        else if (groups_.gathers_from(*user, node))
          return true;
      }
    return groups_.leads_to(others, target);
  }

  // Puts a broadcast of a reduced value inside the kernels that reduce and reread the row. Returns
  // true if all users are such kernels.
  bool place_broadcast(const Value& value) {
    const Node& node = *value.node();
    const Value& small = whole_ && is_broadcast(node) ? node.inputs[0] : value;
    if (!groups_.fusable(small.node()) || is_constant(*small.node())) return false;
    Dims axes;
    for (int i = 0; i < node.type.shape.size(); ++i)
      if (node.type.shape[i] != small.shape()[i]) axes.push_back(i);
    if (!is_row(node.type.shape, axes, options_.threads)) return false;
    if (!derives_from_reduction(small, axes, node.type.shape)) return false;
    const Demand need = demand(value);
    size_t joined = 0;
    for (int consumer : need.consumers) {
      const FusionGroup& group = groups_[consumer];
      const bool fits =
          group.space == node.type.shape && (group.reduced.empty() || group.reduced == axes);
      // The reduction must be able to join as well: its other users must not lead back here.
      if (!fits || leads_back(small.node(), consumer) || leads_back(value.node(), consumer))
        continue;
      groups_.reduce_over(consumer, node.type.shape, axes);
      groups_.join(value, consumer);
      ++joined;
    }
    return joined > 0 && joined == need.consumers.size() && !need.memory;
  }
  // Returns whether a value derives from a reduction over `axes` of values of shape `space`.
  bool derives_from_reduction(const Value& value, const Dims& axes, const Shape& space,
                              int depth = 0) const {
    const Node& node = *value.node();
    if (!groups_.fusable(value.node()) || depth > 8) return false;
    if (node.op->kind == OpKind::reduce)
      return node.attrs.dims("axes") == axes && node.inputs[0].shape() == space;
    if (node.op->kind != OpKind::elementwise) return false;
    for (const Value& input : node.inputs)
      if (derives_from_reduction(input, axes, space, depth + 1)) return true;
    return false;
  }

  // Returns whether several readers need the value and a library kernel could compute it from its
  // own node, which nobody else reads, so that the readers need not recompute it.
  bool belongs_to_library(const Value& value, const Demand& need) const {
    const Node* own = bases_.at(value.node());
    if (own == nullptr || own == value.node() || groups_.kind(own) != FusionGroup::Kind::library ||
        uses_.count(own) != 1 || need.consumers.size() + (need.memory ? 1 : 0) < 2)
      return false;
    return library_makes(groups_, own, value, uses_, options_);
  }
  // A compressed activation is computed beside its operand, not in its reader.
  static bool is_compressed(const Node& node) { return node.annotations.compressed; }
  void place_constant(const Value& value, const Demand& need) {
    for (int consumer : need.consumers) groups_.join(value, consumer);
    if (need.memory || need.consumers.empty()) groups_.store(value, groups_.add(value));
  }

  FusionGroups& groups_;
  const Uses& uses_;
  const PassOptions& options_;
  bool whole_;
  NodeMap<const Node*> bases_;
};
}  // namespace

void fuse_into_users(FusionGroups& groups, const Uses& uses, const PassOptions& options) {
  Placer placer(groups, uses, options);
  for (size_t i = uses.nodes().size(); i-- > 0;) placer.place(uses.nodes()[i]);
}
}  // namespace weft
