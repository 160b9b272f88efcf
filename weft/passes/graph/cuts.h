// Says how values are shared out to the ranks of a mesh axis, and what axis maps make of that. The
// sharding pass (shard.cpp) reads operations through these functions.
#pragma once

#include <functional>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "weft/ir/axis_map.h"
#include "weft/ir/graph.h"
#include "weft/ir/mesh.h"

namespace weft {

// Held says what a rank has of a value of the whole step.
struct Held {
  enum class Kind : uint8_t { whole, split, partial };
  Kind kind = Kind::whole;
  int axis = 0;         // of a split value; see Split
  int64_t before = 1;   // of a split value
  bool stored = false;  // split as state is, along the axis of the data

  bool is(Kind other) const { return kind == other; }
};
// A Cut is a part of a factor for each rank: the factor is `before` segments, of which each rank
// has an equal part.
struct Cut {
  int factor = -1;
  int64_t before = 1;
  bool operator==(const Cut&) const = default;
};

Held held_in(const Layout& layout, const MeshAxis& mesh);
// Returns the cut of a factor that cuts an axis like this; nullopt if the axis is cut within
// several factors.
std::optional<Cut> cut_of(const AxisMap& map, const FactoredAxis& axis, int64_t before,
                          int64_t ranks);
// Returns how a value is split whose factor is cut; nullopt for a value without the factor.
std::optional<Held> split_by(const AxisMap& map, const std::vector<FactoredAxis>& axes,
                             const Cut& cut);
// Return whether parts of a factor give parts of the result, or results that are combined.
bool is_plain(const AxisMap& map, const Cut& cut);
bool is_reduced(const AxisMap& map, const Cut& cut);
// Returns the operation that combines results of a reduction.
std::string_view combination(const Factor& factor, DType dtype);
bool is_pointwise(const Node& node);  // an elementwise operation or a view
// Returns whether an operation of these operands is the same before and after partial ones of them
// are added over the ranks.
bool is_linear(const Node& node, const std::function<Held(const Value&)>& held);
// Returns the value of which each rank has such a part; `again` and `reader` as in
// all_gather().
Value gathered(const Value& part, const Held& held, const MeshAxis& mesh, bool again,
               std::string_view reader);
// Returns the part that the rank at `place`, an i64 scalar, has of a value that it has whole.
Value cut_out(const Value& whole, const Held& held, const Value& place, int64_t ranks);

// Returns the values of which each rank should have a part, as only parts of state derive from them
// by pointwise operations.
using WantedParts = std::unordered_map<const Node*, Held>;
WantedParts wanted_parts(const Graph& graph, const MeshAxis& mesh);

}  // namespace weft
