#include "weft/ir/op_def.h"
#include "weft/passes/fusion/groups.h"

namespace weft {
namespace {
class Merger {
 public:
  Merger(FusionGroups& groups, const Uses& uses, const PassOptions& options)
      : groups_(groups), uses_(uses), options_(options) {}

  // Merges reductions of the same space and axes that read a value in common, so that it is read
  // once: for example the two sums of a batch norm's backward pass and a bias gradient.
  bool merge_alike() {
    bool any = false;
    for (const std::vector<int>& readers : readers_of_whole_values())
      for (size_t i = 0; i < readers.size(); ++i)
        for (size_t j = i + 1; j < readers.size(); ++j) any |= try_merge(readers[i], readers[j]);
    return any;
  }
  // Merges reductions across rows into a kernel of rows that reads the same values: for example the
  // gradients of a norm's gain and bias into that of its input.
  bool merge_across() {
    bool any = false;
    for (const std::vector<int>& readers : readers_of_whole_values())
      for (int rows : readers)
        for (int columns : readers)
          if (rows != columns && reduces_across(groups_[rows], groups_[columns]) &&
              !groups_.merging_makes_cycle(rows, columns)) {
            groups_.merge(rows, columns);
            any = true;
          }
    return any;
  }
  // Drops views and values that only the merged readers had read.
  void forget_unread() {
    for (size_t i = uses_.nodes().size(); i-- > 0;) {
      const Node* node = uses_.nodes()[i].node();
      const int home = groups_.home(node);
      if (home < 0 || is_read(node)) continue;
      const FusionGroup::Kind kind = groups_[home].kind;
      if (kind == FusionGroup::Kind::view || kind == FusionGroup::Kind::fused)
        groups_.unstore(node);
    }
  }

 private:
  // Returns, for each value, the reducing groups that read all of it from memory.
  std::vector<std::vector<int>> readers_of_whole_values() const {
    NodeMap<std::vector<int>> readers;
    for (int u = 0; u < groups_.count(); ++u) {
      const FusionGroup& group = groups_[u];
      if (group.kind != FusionGroup::Kind::fused || group.reduced.empty()) continue;
      for (const Value& member : group.nodes)
        for (const Value& input : member->inputs)
          if (input.shape() == group.space && !groups_.holds(u, input.node()))
            readers[input.node()].push_back(u);
    }
    std::vector<std::vector<int>> result;
    for (const Value& value : uses_.nodes())
      if (std::vector<int>* found = readers.find(value.node())) result.push_back(std::move(*found));
    return result;
  }

  bool try_merge(int into, int from) {
    const FusionGroup &a = groups_[into], &b = groups_[from];
    const bool alike = into != from && a.space == b.space && a.reduced == b.reduced && fit(a, b);
    if (!alike) return false;
    const bool rows = is_row(a.space, a.reduced, options_.threads);  // may reread its sums
    if (rows ? groups_.merging_makes_cycle(into, from)
             : groups_.leads_to(groups_.readers_of(into), from) ||
                   groups_.leads_to(groups_.readers_of(from), into))
      return false;
    groups_.merge(into, from);
    return true;
  }
  bool reduces_across(const FusionGroup& rows, const FusionGroup& columns) const {
    if (rows.space != columns.space || !fit(rows, columns)) return false;
    if (!is_row(rows.space, rows.reduced, options_.threads)) return false;
    const Shape small = reduced_shape(rows);
    const int kept = rows.space.size() - rows.reduced.size();
    if (small == rows.space || columns.reduced.size() != kept) return false;
    for (int64_t axis : columns.reduced)
      if (axis >= kept) return false;
    // The columns may only reduce, and nothing here may read the results.
    for (const Value& member : columns.nodes) {
      const bool reduces = member->op->kind == OpKind::reduce;
      if (reduces && member.dtype() != member->inputs[0].dtype()) return false;
      if (!reduces && member.shape() != rows.space && !is_constant(*member.node()) &&
          member.shape() != small)
        return false;
    }
    return true;
  }
  // Returns whether neither was merged into another and both fit in one kernel.
  static bool fit(const FusionGroup& a, const FusionGroup& b) {
    return !a.nodes.empty() && !b.nodes.empty() &&
           a.nodes.size() + b.nodes.size() <= largest_kernel;
  }

  // Returns whether anyone reads the value from memory.
  bool is_read(const Node* node) const {
    if (uses_.is_root(node)) return true;
    for (const Node* user : uses_.of(node)) {
      if (reads_memory(*user) || user->op->kind == OpKind::random) return true;
      for (int group : groups_.holders(user))
        if (!groups_.holds(group, node)) return true;
    }
    return false;
  }

  FusionGroups& groups_;
  const Uses& uses_;
  const PassOptions& options_;
};
}  // namespace

void fuse_reductions(FusionGroups& groups, const Uses& uses, const PassOptions& options) {
  Merger merger(groups, uses, options);
  const bool merged = merger.merge_alike();
  if (merger.merge_across() || merged) merger.forget_unread();
}
}  // namespace weft
