// Reads, makes and folds constants.
//
// Only operations that every kernel computes to the same bits are folded: those that IEEE 754
// rounds exactly, comparisons, selections and movements. The exponential of a constant is left to
// the kernel.
#pragma once

#include <optional>

#include "weft/ir/value.h"

namespace weft {

// Returns the number that every element of `value` equals, rounded to its dtype, or nullopt.
std::optional<double> uniform_value(const Value& value);
// Returns a value all of whose elements are `number`.
Value filled(const Type& type, double number);
// Returns the constant that `value` equals, or an empty Value.
Value fold(const Value& value);

}  // namespace weft
