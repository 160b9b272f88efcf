// Where the elements of a movement lie, as a placement over the bytes of its input.
#pragma once

#include <optional>

#include "weft/ir/plan.h"

namespace weft {

// The placement of `node` (reshape, permute, broadcast, slice, flip) over that of its input;
// nullopt for a reshape that strides cannot express: then the input must be copied to row-major
// first.
std::optional<Placement> view_of(const Node& node, const Placement& input);

// Axes from outermost to innermost as they lie; axes of extent 1 and ties keep their logical order.
Dims physical_order(const Shape& shape, const Dims& strides);
// Strides of a dense value whose axes lie in `order` (empty: row-major).
Dims dense_strides(const Shape& shape, const Dims& order);
// Whether strides agree on every axis that has more than one element.
bool same_strides(const Shape& shape, const Dims& a, const Dims& b);

}  // namespace weft
