// Beam search for an order of steps whose peak is below a bound: for small plans, whose best order
// list scheduling can miss.
#pragma once

#include <cstddef>
#include <vector>

#include "weft/passes/dependencies.h"
#include "weft/passes/lifetimes.h"

namespace weft {

// An order whose live bytes stay below `bound` in every step, or an empty one if none was found.
// Builds orders step by step, side by side; of those that ran the same steps it keeps one, and of
// the rest the `width` with the fewest live bytes.
std::vector<int> order_below(size_t bound, const Plan& plan, const Dependencies& edges,
                             const ArenaUse& use, size_t width);

}  // namespace weft
