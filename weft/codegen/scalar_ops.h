// Translates the elementwise operations of the graph to scalar code, for every dtype.
#pragma once

#include <span>

#include "weft/ir/op_def.h"
#include "weft/ir/scalar_code.h"

namespace weft::loop {

// Convert an element from and to its form in memory. Both forms are the same, except for dtypes
// without instructions in the loop IR: their bits are integers in memory (storage_type).
Expr from_memory(Expr element, DType dtype);
Expr to_memory(Expr value, DType dtype);
DType storage_type(DType dtype);
// Returns the type that a load of an element of `dtype` yields.
DType loaded_type(DType dtype);
// Converts `x` to the compute type of `dtype`, rounded to a value that `dtype` represents.
Expr round_to(Expr x, DType dtype);
// Returns the value of one elementwise node: `from` is the dtype of its first operand, `to` of the
// result.
Expr scalar_op(const OpDef& def, std::span<const Expr> args, DType from, DType to);
// Returns a constant of the graph, rounded to `dtype`.
Expr constant(Code& code, DType dtype, double value);

}  // namespace weft::loop
