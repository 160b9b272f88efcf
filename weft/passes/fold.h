// Constants: reading them, making them, and evaluating operations on them.
//
// Only what every kernel computes to the same bits is evaluated here: operations that IEEE 754
// rounds exactly, comparisons, choices and movements. The exponential of a constant is left to the
// kernel.
#pragma once

#include <optional>

#include "weft/ir/value.h"

namespace weft {

// The number that every element of `value` equals, rounded to its dtype; nullopt if there is none.
std::optional<double> uniform_value(const Value& value);
// A value all of whose elements are `number`.
Value filled(const Type& type, double number);
// The constant that `value` equals, or an empty Value.
Value fold(const Value& value);

}  // namespace weft
