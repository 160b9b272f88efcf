// Provides mathematical functions as branch-free scalar code of the loop IR, so that every emitter
// has them and loops vectorize. Where speed matters, they are formulas for f32 within 2 ULP on all
// inputs (tests/codegen/vector_math_test.cpp); the others call libm in f64, lane by lane.
#pragma once

#include <string_view>

#include "weft/codegen/scalar_code.h"

namespace weft::loop {

// Returns whether x is f32 and its functions must not use f64 (Maths::single).
bool is_single(Expr x);

// x and y are f32 or f64.
Expr function(std::string_view name, Expr x);  // a function of libm, or an OpDef's `function`
Expr pow(Expr x, Expr y);
Expr atan2(Expr y, Expr x);

}  // namespace weft::loop
