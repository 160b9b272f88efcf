// How far two correct evaluations of a node may lie apart: a running error analysis, first order,
// element by element (Higham, "Accuracy and Stability of Numerical Algorithms", 2002, chapter 3).
//
// Arithmetic may differ by one unit in the last place, functions by four. A sum of n terms is
// allowed 4 + n / 2 roundings of the sum of magnitudes in the type that it accumulates in: what
// equal terms, added one by one, may cost. What operands bring along is carried through the op: by
// its oracle for elementwise ops, by the op itself where it is linear.
#pragma once

#include <span>
#include <vector>

#include "weft/ir/value.h"

namespace weft::testing {

using Errors = std::vector<double>;  // per element, row-major, absolute; infinite: no bound

// Half the distance from 1 to the next number; 0 for integers.
double unit_roundoff(DType dtype);

// Of a primitive: `result` and `operands` are its value and its inputs' as data leaves, `errors`
// what is allowed for those.
Errors allowed_errors(const Node& node, const Value& result, std::span<const Value> operands,
                      std::span<const Errors> errors);

}  // namespace weft::testing
