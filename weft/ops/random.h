// Declares how a part of a step draws its part of random numbers.
#pragma once

#include "weft/ir/value.h"

namespace weft {

// Returns random numbers in [0, 1) of these attributes of a random_uniform, whose place in the
// larger one begins `every` elements behind that of the part before. `step` and `part` are i64
// scalars.
Value uniform_part(const Value& step, const Value& part, const Attrs& attrs, int64_t every);

}  // namespace weft
