// For the definitions of operations: turning what users pass into nodes.
#pragma once

#include <span>
#include <utility>

#include "weft/ir/op_def.h"
#include "weft/ops/ops.h"

namespace weft {

// A value from an argument: a scalar takes `like`'s dtype (f32 if a fraction meets an integer).
Value to_value(const Arg& arg, const Value& like);
// Two arguments with equal shape and dtype: scalars converted, shapes broadcast.
std::pair<Value, Value> match(const Arg& a, const Arg& b, std::string_view op);
// For ops that sum: refuses bool.
void check_numeric(DType dtype, std::string_view op);
Shape broadcast_shapes(const Shape& a, const Shape& b, std::string_view op);

Value apply_unary(const OpDef& def, const Arg& x);
Value apply_binary(const OpDef& def, const Arg& a, const Arg& b);

// Axes of a reduction: normalised, sorted, all where none are given.
Dims reduce_axes(const Dims& axes, int rank, std::string_view op);
// Sum of `x` over the axes along which `shape` has extent 1 (or lacks): the transpose of
// broadcasting.
Value sum_to(const Value& x, const Shape& shape);

}  // namespace weft
