// Declares the fusion groups while fuse() builds them: which nodes each holds, which values it
// stores, and whether a path leads out of a kernel and back into it. The stages of fuse() are
// declared at the end.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "weft/device/bound.h"
#include "weft/passes/fusion/fuse.h"

namespace weft {

inline constexpr int64_t cached_elements = 1 << 17;  // float32 elements that fit in the L2 cache

// Returns whether the reduced axes are innermost, the row fits in the cache, and there are enough
// rows for every thread.
bool is_row(const Shape& space, const Dims& reduced, int threads);
// Returns the group's iteration space with reduced axes of extent 1.
Shape reduced_shape(const FusionGroup& group);
bool reduces(const FusionGroup& group);
// Sorts by id; a library kernel's own node stays first.
void sort_nodes(FusionGroup& group);

class FusionGroups {
 public:
  // `exact` makes the search for cycles follow every path.
  FusionGroups(const Uses& uses, const PassOptions& options, bool exact);

  int count() const { return static_cast<int>(groups_.size()); }
  const FusionGroup& operator[](int group) const { return groups_[static_cast<size_t>(group)]; }
  uint64_t first_id(int group) const { return ids_[static_cast<size_t>(group)].first; }
  FusionGroup::Kind kind(const Node* node) const {
    return places_.at(node).kind;
  }  // the kind in its own group
  bool fusable(const Node* node) const { return kind(node) == FusionGroup::Kind::fused; }
  // Returns the groups that hold the node; none for a node that is not placed yet.
  const std::vector<int>& holders(const Node* node) const { return places_.at(node).holders; }
  bool holds(int group, const Node* node) const;
  // Returns the group that stores the value, or -1.
  int home(const Node* node) const { return places_.at(node).home; }

  int add(const Value& value);  // adds a group of one node
  void join(const Value& value, int group);
  void reduce_over(int group, const Shape& space, const Dims& axes);
  void store(const Value& value, int group);
  // Marks a value that is no longer read from memory.
  void unstore(const Node* node);
  void merge(int into, int from);
  // Records why a value that the group reads was not joined to it.
  void refuse(const Value& value, int group, FusionRefusal reason);
  // Moves nodes between groups. Constants that the remaining nodes read stay in both.
  void move(std::span<const Value> part, int from, int into);

  // Returns whether a user reads a value at other places than its own, so that no kernel computes
  // both.
  static bool gathers_from(const Node& user, const Node* value);
  // Returns the groups that read what this group stores.
  std::vector<int> readers_of(int group) const { return readers_of(group, group, group); }
  // Returns whether a path leads from any of these groups to `target`, through stored values.
  bool leads_to(std::span<const int> from, int target) const {
    return leads_to(from, target, target, ids_[static_cast<size_t>(target)].last);
  }
  // Returns whether a path would lead out of the merged kernel of `a` and `b` and back into it,
  // apart from values that stay inside the kernel.
  bool merging_makes_cycle(int a, int b) const;

  // Returns the node that a view is of, or the node itself.
  const Node* before_views(const Node* node) const;

  // Returns the groups without empty ones; the order is still missing.
  Fusion finish();

 private:
  struct Ids {
    uint64_t first, last;  // over the group's nodes
    uint64_t first_stored = std::numeric_limits<uint64_t>::max();
  };
  // A Place has the groups that hold and store a node.
  struct Place {
    FusionGroup::Kind kind = FusionGroup::Kind::leaf;
    int home = -1;
    std::vector<int> holders;
  };

  FusionGroup::Kind kind_of(const Node& node) const;
  bool is_placed(const Node& concat) const;
  FusionRefusal refusal_of(const Node* input, int group) const;
  std::vector<int> readers_of(int group, int a, int b) const;
  bool leads_to(std::span<const int> from, int a, int b, uint64_t last) const;
  bool reads_all_of(int group, int other) const;
  bool lives_within(const Node& node, int a, int b) const;

  const Uses& uses_;
  const PassOptions& options_;
  bool exact_;
  std::vector<FusionGroup> groups_;
  std::vector<Ids> ids_;  // one per group
  NodeMap<Place> places_;
  NodeMap<std::vector<std::pair<int, FusionRefusal>>> refusals_;  // refusals of values, by group
  std::vector<int> merged_into_;                                  // by group; itself: not merged
};

// Walks from users to producers: each node joins its users' kernels or gets its own group.
void fuse_into_users(FusionGroups& groups, const Uses& uses, const PassOptions& options);
// Merges reductions that read a value in common into one kernel.
void fuse_reductions(FusionGroups& groups, const Uses& uses, const PassOptions& options);
// Lets library kernels absorb nodes around them, where the library has a kernel for both.
void fuse_into_libraries(FusionGroups& groups, const Uses& uses, const PassOptions& options);
// Returns whether the library has a kernel that computes `value` from its node `own` and stores
// only `value`. With options.apart, nothing else that the kernel computes may be read.
bool library_makes(const FusionGroups& groups, const Node* own, const Value& value,
                   const Uses& uses, const PassOptions& options);

}  // namespace weft
