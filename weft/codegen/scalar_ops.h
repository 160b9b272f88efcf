// What each elementwise operation of the graph is in scalar code, for every dtype.
#pragma once

#include <span>

#include "weft/codegen/scalar_code.h"
#include "weft/ir/op_def.h"

namespace weft::loop {

// The type in which values of `dtype` are computed: f32 for f16 and bf16.
DType compute_type(DType dtype);
// `x` rounded to what `dtype` can represent, in its compute type. Converts.
Expr round_to(Expr x, DType dtype);
// One elementwise node: `from` is the dtype of its first value operand, `to` of the result.
Expr scalar_op(const OpDef& def, std::span<const Expr> args, DType from, DType to);
// A constant of the graph, rounded to `dtype`.
Expr constant(Code& code, DType dtype, double value);

}  // namespace weft::loop
