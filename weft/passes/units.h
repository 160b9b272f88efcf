// The units of fuse() while it makes them: which nodes are in which, who stores what, and whether a
// way leads out of a kernel and back into it. Below, the stages that make them.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "weft/device/bound.h"
#include "weft/passes/fuse.h"

namespace weft {

inline constexpr int64_t cached_elements = 1 << 17;  // of f32, that the L2 cache holds

// Whether the reduced axes are innermost, few enough elements for the cache, and beside them there
// are rows enough for every thread.
bool is_row(const Shape& space, const Dims& reduced, int threads);
// Of its space, with the reduced axes of extent 1.
Shape reduced_shape(const Unit& unit);
bool reduces(const Unit& unit);
// A library's own node stays first.
void sort_nodes(Unit& unit);

class Units {
 public:
  // `exact` follows every path when it looks for a way back into a kernel.
  Units(const Uses& uses, const PassOptions& options, bool exact);

  int count() const { return static_cast<int>(units_.size()); }
  const Unit& operator[](int unit) const { return units_[static_cast<size_t>(unit)]; }
  uint64_t first_id(int unit) const { return ids_[static_cast<size_t>(unit)].first; }
  Unit::Kind kind(const Node* node) const { return places_.at(node).kind; }  // of a unit of its own
  bool fusable(const Node* node) const { return kind(node) == Unit::Kind::fused; }
  // The units that it is in; none for a node that is not placed yet.
  const std::vector<int>& holders(const Node* node) const { return places_.at(node).holders; }
  bool holds(int unit, const Node* node) const;
  // The one that stores it; -1: none does.
  int home(const Node* node) const { return places_.at(node).home; }

  int add(const Value& value);  // by itself
  void join(const Value& value, int unit);
  void reduce_over(int unit, const Shape& space, const Dims& axes);
  void store(const Value& value, int unit);
  // Nobody reads it from memory any more.
  void unstore(const Node* node);
  void merge(int into, int from);
  // Notes why a value that the unit reads was not joined to it.
  void refuse(const Value& value, int unit, FusionRefusal reason);
  // Constants that what stays behind reads are there, too.
  void move(std::span<const Value> part, int from, int into);

  // The units that read what this one stores.
  std::vector<int> readers_of(int unit) const { return readers_of(unit, unit, unit); }
  // Whether any of these units leads to `target`, through values that are stored and read.
  bool leads_to(std::span<const int> from, int target) const {
    return leads_to(from, target, target, ids_[static_cast<size_t>(target)].last);
  }
  // Whether one of the two would read what comes of the other, but for what they could read of each
  // other inside one kernel.
  bool merging_makes_cycle(int a, int b) const;

  // What a view is of, itself where it is none.
  const Node* before_views(const Node* node) const;

  // All but the order; units that were merged into others are gone.
  Fusion finish();

 private:
  struct Ids {
    uint64_t first, last;  // over the unit's nodes
    uint64_t first_stored = std::numeric_limits<uint64_t>::max();
  };
  // Where a node is.
  struct Place {
    Unit::Kind kind = Unit::Kind::leaf;
    int home = -1;
    std::vector<int> holders;
  };

  Unit::Kind kind_of(const Node& node) const;
  bool is_placed(const Node& concat) const;
  FusionRefusal refusal_of(const Node* input, int unit) const;
  std::vector<int> readers_of(int unit, int a, int b) const;
  bool leads_to(std::span<const int> from, int a, int b, uint64_t last) const;
  bool reads_all_of(int unit, int other) const;
  bool lives_within(const Node& node, int a, int b) const;

  const Uses& uses_;
  const PassOptions& options_;
  bool exact_;
  std::vector<Unit> units_;
  std::vector<Ids> ids_;  // of each unit
  NodeMap<Place> places_;
  NodeMap<std::vector<std::pair<int, FusionRefusal>>> refusals_;  // of values, by unit
  std::vector<int> merged_into_;                                  // by unit; itself: nowhere
};

// From users to producers: each node joins kernels of its users, or gets a unit of its own.
void fuse_into_users(Units& units, const Uses& uses, const PassOptions& options);
// Reductions that read a value in common become one kernel.
void fuse_reductions(Units& units, const Uses& uses, const PassOptions& options);
// Library kernels take in what stands beside them, where the library has a kernel for both.
void fuse_into_libraries(Units& units, const Uses& uses, const PassOptions& options);
// Whether the library has a kernel for its node `own` that stores, of all that follows from it,
// this value alone; with options.apart, nothing else of it may be read.
bool library_makes(const Units& units, const Node* own, const Value& value, const Uses& uses,
                   const PassOptions& options);

}  // namespace weft
