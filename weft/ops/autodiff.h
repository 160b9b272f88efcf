// Reverse-mode differentiation, graph to graph: the result is ordinary nodes.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "weft/ir/value.h"

namespace weft {

// So many values that were read, each computed from the one before, keep their expressions; the
// next one is cut (Node::cut), which frees those behind it. A loop that reads its state in each
// turn would otherwise grow without end.
inline constexpr size_t longest_chain = 1000;

// Orders nodes so that each comes after all that its expression reads. Ids do, but for handles of a
// variable that were read: each of them is computed from the next, which is younger.
bool computed_before(const Node& a, const Node& b);

// d(sum of y * seed) / d(x) for each x of `wrt` (zeros where y does not depend on x). `seed` has
// y's type; empty: ones, and y must have one element. Throws Error if y is not floating point,
// and if a gradient goes through a cut.
std::vector<Value> gradients(const Value& y, std::span<const Value> wrt, const Value& seed = {});

}  // namespace weft
