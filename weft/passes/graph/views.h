// Compares the placements of views (OpDef::view).
#pragma once

#include "weft/ir/plan.h"

namespace weft {

// Returns whether strides agree on every axis with more than one element.
bool same_strides(const Shape& shape, const Dims& a, const Dims& b);

}  // namespace weft
