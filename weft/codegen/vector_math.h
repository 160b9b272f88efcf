// Provides mathematical functions as branch-free scalar code of the loop IR, so that every emitter
// has them and loops vectorize. Where speed matters, they are formulas for f32 within 2 ULP on all
// inputs (tests/codegen/vector_math_test.cpp); the others call libm in f64, lane by lane.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "weft/ir/scalar_code.h"

namespace weft::loop {

// Returns the value of a function of libm, or of an OpDef's `function`, for an f32 or f64.
Expr function(std::string_view name, Expr x);
// Returns the value of operation `op` by a formula that is better than its OpDef's `expression`:
// faster, or without f64 if the kernel must not use f64 (Maths::single). nullopt: no formula is
// known for these operands.
std::optional<Expr> formula(std::string_view op, std::span<const Expr> x);

}  // namespace weft::loop
