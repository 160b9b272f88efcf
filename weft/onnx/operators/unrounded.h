// Keeps what files of 16-bit floats write in parts (sums, the means, norms and deviations made of
// them) in float32 between the parts, as weft's own are: the squares of a row, and their mean, may
// pass the largest float16 where the norm does not. The result of each part is rounded for whatever
// else reads it.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "weft/onnx/file/model.h"

namespace weft::onnx {

// Replaces 16-bit operands of an elementwise part by what they were before they were rounded, where
// one of them is a sum, follows from sums, or is written as several additions that the part scales
// or takes a root of. Returns the type to round the result to.
std::optional<DType> unround_operands(const Node& node, std::vector<Tensor>& operands);

// Returns the float32 value that a 16-bit one was rounded from where that follows from a sum, else
// the value itself.
Tensor before_rounding(const Tensor& x);

// Returns the terms of a sum without the rounding of the elementwise operation that made them (of
// products, that of their factors, too), or of what follows from sums, in float32; all others as
// they are.
Tensor terms_of(const Tensor& x);

// Computes a product of 16-bit floats from such terms and rounds it once, from float32, where it is
// a sum by another name: a factor has one number everywhere, or both are one value (squares).
// Others are products of the factors as they are. A Product that is `wide` returns float32.
using Product = std::function<Tensor(std::span<const Tensor> factors, bool wide)>;
Tensor product_or_sum(std::vector<Tensor> factors, const Product& product);
std::vector<Tensor> widened(std::span<const Tensor> values);

}  // namespace weft::onnx
