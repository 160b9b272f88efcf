// Declares helpers for the definitions of operations, which turn the arguments of users into nodes.
#pragma once

#include <span>
#include <utility>

#include "weft/ir/op_def.h"
#include "weft/ops/ops.h"

namespace weft {

// Returns an argument as a value. A scalar gets `like`'s dtype (f32 for a fraction with integers).
Tensor to_value(const Arg& arg, const Tensor& like);
// Returns both arguments with one shape and dtype: scalars are converted, shapes broadcast.
std::pair<Tensor, Tensor> match(const Arg& a, const Arg& b, std::string_view op);
// Returns an argument of type float. Throws Error(usage) for others.
Tensor float_input(const Arg& x, std::string_view op);
// Throws Error(usage) for bool, which ops that sum do not take.
void check_numeric(DType dtype, std::string_view op);
Shape broadcast_shapes(const Shape& a, const Shape& b, std::string_view op);

// Returns an attribute as an axis of a shape. Type rules check attributes although users' functions
// have checked them, because the nodes of a compiled model are read from a file.
inline int axis_of(const Shape& shape, int64_t axis) {
  WEFT_ASSERT(axis >= 0 && axis < shape.size(), "axis {} of {}", axis, to_string(shape));
  return static_cast<int>(axis);
}

// Infers the type of an elementwise operation: that of its first operand.
inline Type same_type(std::span<const Tensor> inputs, const Attrs&) { return inputs[0].type(); }

Tensor apply_unary(const OpDef& def, const Arg& x);
Tensor apply_binary(const OpDef& def, const Arg& a, const Arg& b);

// Returns the axes of a reduction, normalized and sorted; no axes means all of them.
Dims reduce_axes(const Dims& axes, int rank, std::string_view op);
// Sums `x` over the axes along which `shape` has extent 1, or which it lacks: the transpose of
// broadcasting.
Tensor sum_to(const Tensor& x, const Shape& shape);
// Returns the operations of a product whose first operand has the reduced extent last.
double product_flops(const Node& node);

}  // namespace weft
