// Rules that replace one node by a cheaper expression with the same bits. Each looks at a node
// whose inputs are simple already, and returns its replacement or an empty Value.
#pragma once

#include "weft/ir/value.h"

namespace weft {

// Elementwise operations. Fault `wrong`: constants beside a broadcast come out one greater.
Value simplify_arithmetic(const Value& value, bool wrong = false);
// Reshapes, permutations, broadcasts, slices, pads, concatenations. Fault `wrong`: flips are lost.
Value simplify_movement(const Value& value, bool wrong = false);
Value simplify_reduction(const Value& value);  // over axes of extent 1
// Few rows added to zeros. Fault `wrong`: an index outside adds to the first of them.
Value simplify_scatter(const Value& value, bool wrong = false);

}  // namespace weft
