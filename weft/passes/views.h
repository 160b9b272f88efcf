// Placements of views (OpDef::view), compared.
#pragma once

#include "weft/ir/plan.h"

namespace weft {

// Whether strides agree on every axis that has more than one element.
bool same_strides(const Shape& shape, const Dims& a, const Dims& b);

}  // namespace weft
