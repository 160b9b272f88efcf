// Declares the beam search for an order of launches whose peak is below a bound, for small plans
// whose best order list scheduling can miss.
#pragma once

#include <cstddef>
#include <vector>

#include "weft/passes/memory/liveness.h"
#include "weft/passes/order/dependencies.h"

namespace weft {

// Returns an order whose live bytes stay below `bound` at every launch, or an empty one if none was
// found. Partial orders are extended launch by launch; of those with the same set of launches one
// is kept, and of these the `width` with the fewest live bytes.
std::vector<int> order_below(size_t bound, const Plan& plan, const Dependencies& edges,
                             const ArenaUse& use, size_t width);

}  // namespace weft
