#include "weft/codegen/float_formats.h"

#include <cmath>

namespace weft::loop {
namespace {
constexpr int single_fraction = 23, single_bias = 127, single_infinity = 0x7f800000;

Expr integer_like(Expr like, int64_t value) { return like.code->integer(like.type(), value); }
Expr added(Expr a, int64_t b) { return a + integer_like(a, b); }

}  // namespace

Expr to_odd_single(Expr x) {
  const Expr near = convert(x, DType::f32), back = convert(near, x.type());
  const Expr bits = bitcast(near, DType::i32);
  const Expr toward_zero = bits - convert(abs(back) > abs(x), DType::i32);
  return bitcast(toward_zero | convert((back < x) | (back > x), DType::i32), DType::f32);
}

// No intermediate value is a subnormal f32, which devices may flush to zero.
Expr number_of_bits(Expr raw, const FloatFormat& format) {
  const int shift = single_fraction - format.fraction, width = format.exponent + format.fraction;
  const int64_t all = (int64_t{1} << width) - 1;
  const Expr bits = convert(raw, DType::i32);
  const Expr magnitude = bits & all;
  const Expr sign = (bits >> width) << 31;
  const Expr normal =
      added(magnitude << shift, int64_t{single_bias - format.bias()} << single_fraction);
  const double unit = std::ldexp(1.0, format.least_exponent() - format.fraction);
  const Expr small = bitcast(convert(magnitude, DType::f32) * unit, DType::i32);
  const Expr special = (magnitude << shift) | single_infinity;  // a NaN keeps a bit of its fraction
  const int64_t first_special =
      format.has_infinities ? all >> format.fraction << format.fraction : all;
  const Expr is_small = magnitude < integer_like(magnitude, int64_t{1} << format.fraction);
  const Expr is_special = magnitude >= integer_like(magnitude, first_special);
  return bitcast(select(is_special, special, select(is_small, small, normal)) | sign, DType::f32);
}

Expr bits_of_number(Expr x, const FloatFormat& format) {
  if (x.type() == DType::f64) x = to_odd_single(x);
  const int shift = single_fraction - format.fraction, width = format.exponent + format.fraction;
  const int64_t all = (int64_t{1} << width) - 1;
  const int64_t infinity = all >> format.fraction << format.fraction;
  const int64_t too_large = format.has_infinities ? infinity : all - 1;
  const Expr bits = bitcast(x, DType::i32);
  const Expr magnitude = bits & int64_t{0x7fffffff};
  const Expr sign = (bits >> 31) << width;
  // The carry of the fraction goes into the exponent.
  const Expr odd = (magnitude >> shift) & int64_t{1};
  const Expr rounded = added(magnitude + odd, (int64_t{1} << (shift - 1)) - 1) >> shift;
  const Expr normal = added(rounded, -(int64_t{single_bias - format.bias()} << format.fraction));
  const double units = std::ldexp(1.0, format.fraction - format.least_exponent());
  const Expr small = convert(rint(abs(x) * units), DType::i32);
  const int64_t least = int64_t{single_bias + format.least_exponent()} << single_fraction;
  const Expr finite = select(magnitude < integer_like(magnitude, least), small, normal);
  const Expr limit = integer_like(finite, too_large);
  const Expr bounded = select(finite < limit, finite, limit);
  const Expr is_nan = magnitude > integer_like(magnitude, single_infinity);
  return convert(select(is_nan, integer_like(bounded, all), bounded) | sign, DType::u8);
}

}  // namespace weft::loop
