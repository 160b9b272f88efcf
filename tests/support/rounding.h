// Bounds how far two correct evaluations of a node may differ: a first-order running error analysis
// per element (Higham, "Accuracy and Stability of Numerical Algorithms", 2002, chapter 3).
//
// Arithmetic may differ by one unit in the last place, functions by four. A sum of n terms is
// allowed 4 + n / 2 roundings of the sum of magnitudes in its accumulator type: what adding equal
// terms one by one may cost. Errors of operands propagate through the op: by its oracle for
// elementwise ops, by the op itself where it is linear.
#pragma once

#include <span>
#include <vector>

#include "weft/ir/value.h"

namespace weft::testing {

using Errors = std::vector<double>;  // per element, row-major, absolute; infinite: no bound

// Returns half the distance from 1 to the next number; 0 for integers.
double unit_roundoff(DType dtype);

// Returns the allowed errors of a primitive: `result` and `operands` are its value and inputs as
// data leaves, `errors` the allowed errors of the inputs.
Errors allowed_errors(const Node& node, const Value& result, std::span<const Value> operands,
                      std::span<const Errors> errors);

}  // namespace weft::testing
