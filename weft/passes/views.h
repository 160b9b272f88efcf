// Where the elements of a movement lie, as a placement over the bytes of its input.
#pragma once

#include <optional>

#include "weft/ir/plan.h"

namespace weft {

// The placement of `node` (reshape, permute, broadcast, slice, flip) over that of its input;
// nullopt for a reshape that strides cannot express: then the input must be copied to row-major
// first.
std::optional<Placement> view_of(const Node& node, const Placement& input);

// Whether strides agree on every axis that has more than one element.
bool same_strides(const Shape& shape, const Dims& a, const Dims& b);

}  // namespace weft
