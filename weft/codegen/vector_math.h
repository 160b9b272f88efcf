// Mathematical functions as branch-free scalar code of the loop IR, so that every emitter has them
// and loops vectorise. Written for f32 within 2 ULP on all inputs
// (tests/codegen/vector_math_test.cpp); f64 goes to libm, lane by lane.
#pragma once

#include "weft/codegen/scalar_code.h"

namespace weft::loop {

// x is f32 or f64.
Expr exp(Expr x);
Expr exp2(Expr x);
Expr expm1(Expr x);
Expr log(Expr x);
Expr log2(Expr x);
Expr log10(Expr x);
Expr log1p(Expr x);
Expr rsqrt(Expr x);
Expr sin(Expr x);
Expr cos(Expr x);
Expr tan(Expr x);
Expr asin(Expr x);
Expr acos(Expr x);
Expr atan(Expr x);
Expr sinh(Expr x);
Expr cosh(Expr x);
Expr tanh(Expr x);
Expr asinh(Expr x);
Expr acosh(Expr x);
Expr atanh(Expr x);
Expr erf(Expr x);
Expr erfc(Expr x);
Expr pow(Expr x, Expr y);
Expr atan2(Expr y, Expr x);

}  // namespace weft::loop
