// Files of 16-bit floats write sums, and the means, norms and deviations made of sums, in parts.
// This keeps them in float32 between the parts, as weft's own operations are: the squares of a row,
// and their mean, may pass the largest float16 where the norm does not. Other readers of a part get
// its rounded result.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "weft/onnx/file/model.h"

namespace weft::onnx {

// Replaces the 16-bit operands of an elementwise part by their values before rounding, if one of
// them is a sum, follows from sums, or is written as several additions that the part scales or
// takes a root of. Returns the type to round the result to; nullopt where nothing is replaced.
std::optional<DType> unround_operands(const Node& node, std::vector<Tensor>& operands);

// Returns the float32 value that a 16-bit value was rounded from where it follows from a sum; else
// the value itself.
Tensor before_rounding(const Tensor& x);

// Returns the terms of a sum in float32, as they were before the elementwise operation that made
// them was rounded (for products, before their factors were, too), or as they follow from sums; all
// other terms as they are.
Tensor terms_of(const Tensor& x);

// Computes a product of 16-bit floats. A product that is in effect a sum (one factor has the same
// number everywhere, or the product squares a value) takes the terms of terms_of() and is rounded
// once, from float32. Other products take their factors as they are. A Product that is `wide`
// returns float32.
using Product = std::function<Tensor(std::span<const Tensor> factors, bool wide)>;
Tensor product_or_sum(std::vector<Tensor> factors, const Product& product);
std::vector<Tensor> widened(std::span<const Tensor> values);

}  // namespace weft::onnx
