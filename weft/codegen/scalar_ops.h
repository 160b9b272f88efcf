// What each elementwise operation of the graph is in scalar code, for every dtype.
#pragma once

#include <span>

#include "weft/codegen/scalar_code.h"
#include "weft/ir/op_def.h"

namespace weft::loop {

// An element as it was loaded from memory, and as it is stored there: itself, but for types that
// the loop IR has no instructions for, whose bits are integers there (storage_type).
Expr from_memory(Expr element, DType dtype);
Expr to_memory(Expr value, DType dtype);
DType storage_type(DType dtype);
// What an instruction that loads such an element yields.
DType loaded_type(DType dtype);
// `x` rounded to what `dtype` can represent, in its compute type. Converts.
Expr round_to(Expr x, DType dtype);
// One elementwise node: `from` is the dtype of its first value operand, `to` of the result.
Expr scalar_op(const OpDef& def, std::span<const Expr> args, DType from, DType to);
// A constant of the graph, rounded to `dtype`.
Expr constant(Code& code, DType dtype, double value);

}  // namespace weft::loop
