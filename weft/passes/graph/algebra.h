// Declares rules that replace one node by a cheaper expression with the same bits. Each rule takes
// a node whose inputs are already simplified and returns its replacement, or an empty Value.
#pragma once

#include "weft/ir/value.h"

namespace weft {

// Simplifies elementwise operations. Fault `wrong`: constants beside a broadcast are off by one.
Value simplify_arithmetic(const Value& value, bool wrong = false);
// Simplifies reshapes, permutations, broadcasts, slices, pads and concatenations. Fault `wrong`:
// flips are lost.
Value simplify_movement(const Value& value, bool wrong = false);
Value simplify_reduction(const Value& value);  // drops axes of extent 1
// Simplifies scatter-adds of few rows to zeros. Fault `wrong`: indices out of range add to row 0.
Value simplify_scatter(const Value& value, bool wrong = false);

}  // namespace weft
