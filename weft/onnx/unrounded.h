// Keeps normalizations that files of 16-bit floats write in parts (ReduceMean, Sub, Pow, Sqrt, Div)
// in float32 between the parts, as weft's own are: the squares of a row, and their mean, may pass
// the largest float16 where the norm does not. The result of each part is rounded for whatever else
// reads it.
#pragma once

#include <optional>
#include <vector>

#include "weft/onnx/model.h"

namespace weft::onnx {

// Replaces 16-bit operands of an elementwise part, one of which is a sum or follows from sums, by
// what they were before they were rounded, and returns the type to round the result to.
std::optional<DType> unround_operands(const Node& node, std::vector<Tensor>& operands);

// Returns the terms of a sum without the rounding of the elementwise operation that made them (of
// products, that of their factors, too), or of what follows from sums, in float32; all others as
// they are.
Tensor terms_of(const Tensor& x);

}  // namespace weft::onnx
