// Rules that replace one node by a cheaper expression with the same bits. Each looks at a node
// whose inputs are simple already, and returns its replacement or an empty Value.
#pragma once

#include "weft/ir/value.h"

namespace weft {

Value simplify_arithmetic(const Value& value);  // elementwise operations
Value simplify_movement(const Value& value);    // reshapes, permutations, broadcasts, slices, pads
Value simplify_reduction(const Value& value);   // over axes of extent 1

}  // namespace weft
