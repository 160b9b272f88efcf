// Declares the means of defining elementwise operations: scalar code, which kernels run
// (OpDef::expression), and integers that wrap (OpDef::integer_oracle).
#pragma once

#include <string_view>

#include "weft/base/numbers/wrapping.h"
#include "weft/ir/scalar_code.h"

namespace weft {

using loop::Expr;
using Exprs = std::span<const loop::Expr>;

// The reason of elementwise operations without a gradient.
inline constexpr std::string_view flat = "piecewise constant: the gradient is zero";

}  // namespace weft
