// Reverse-mode differentiation, graph to graph: the result is ordinary nodes.
#pragma once

#include <span>
#include <vector>

#include "weft/ir/value.h"

namespace weft {

// d(sum of y * seed) / d(x) for each x of `wrt` (zeros where y does not depend on x). `seed` has
// y's type; empty: ones, and y must have one element. Throws Error if y is not floating point.
std::vector<Value> gradients(const Value& y, std::span<const Value> wrt, const Value& seed = {});

}  // namespace weft
