#include "weft/codegen/vector_math.h"

namespace weft::loop {
namespace {
Expr through_libm(Function function, Expr x) {
  return convert(call(function, convert(x, DType::f64)), x.type());
}
}  // namespace
Expr exp(Expr x) { return through_libm(Function::exp, x); }
Expr expm1(Expr x) { return through_libm(Function::expm1, x); }
Expr log(Expr x) { return through_libm(Function::log, x); }
Expr log1p(Expr x) { return through_libm(Function::log1p, x); }
Expr rsqrt(Expr x) { return 1 / sqrt(x); }
Expr sin(Expr x) { return through_libm(Function::sin, x); }
Expr cos(Expr x) { return through_libm(Function::cos, x); }
Expr tan(Expr x) { return through_libm(Function::tan, x); }
Expr asin(Expr x) { return through_libm(Function::asin, x); }
Expr acos(Expr x) { return through_libm(Function::acos, x); }
Expr atan(Expr x) { return through_libm(Function::atan, x); }
Expr sinh(Expr x) { return through_libm(Function::sinh, x); }
Expr cosh(Expr x) { return through_libm(Function::cosh, x); }
Expr tanh(Expr x) { return through_libm(Function::tanh, x); }
Expr erf(Expr x) { return through_libm(Function::erf, x); }
Expr pow(Expr x, Expr y) {
  return convert(call(Function::pow, convert(x, DType::f64), convert(y, DType::f64)), x.type());
}
Expr atan2(Expr y, Expr x) {
  return convert(call(Function::atan2, convert(y, DType::f64), convert(x, DType::f64)), y.type());
}

}  // namespace weft::loop
