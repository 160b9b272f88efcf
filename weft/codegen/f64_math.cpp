// The polynomials are Chebyshev fits computed for this file, with coefficients rounded to f64.
#include "weft/codegen/f64_math.h"

#include <initializer_list>
#include <limits>

namespace weft::loop {
namespace {
constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();
// The high parts have 33 bits, so that their products with small integers are exact; the low parts
// hold the rest.
constexpr double ln2_high = 0.6931471804855391, ln2_low = 7.440617110012397e-11;
constexpr double log10_2_high = 0.3010299955494702, log10_2_low = 1.1451100898021838e-10;
constexpr double log2_e = 1.4426950408889634, log10_e = 0.4342944819032518;
constexpr double pi = 3.141592653589793, half_pi = 1.5707963267948966;
constexpr double half_pi_low = 6.123233995736766e-17;  // pi / 2 - half_pi

Expr polynomial(Expr x, std::initializer_list<double> coefficients) {  // in ascending powers
  auto it = coefficients.end();
  Expr sum = constant_like(x, *--it);
  while (it != coefficients.begin()) sum = fma(sum, x, *--it);
  return sum;
}
Expr clamp(Expr x, double low, double high) {
  return minimum(maximum(x, constant_like(x, low)), constant_like(x, high));
}
Expr is_negative(Expr x) { return bitcast(x, DType::i64) < 0.0; }
Expr with_sign_of(Expr x, Expr magnitude) { return select(is_negative(x), -magnitude, magnitude); }

// Returns 2^exponent for an integer exponent in [-1022, 1023].
Expr power_of_two(Expr exponent) {
  Expr whole = convert(exponent, DType::i64);
  return bitcast((whole + constant_like(whole, 1023)) << 52, DType::f64);
}
// Multiplies by 2^exponent in two factors, so that subnormal results round once.
Expr times_power_of_two(Expr x, Expr exponent) {
  Expr first = floor(exponent * 0.5);
  return x * power_of_two(first) * power_of_two(exponent - first);
}

// Returns (e^r - 1 - r) / r^2 for |r| <= ln 2 / 2.
Expr exp_tail(Expr r) {
  return polynomial(
      r, {0.5, 0.1666666666666667, 0.04166666666666667, 0.008333333333326141, 0.0013888888888883752,
          0.00019841269874800683, 2.4801587325533502e-05, 2.75572554255029e-06,
          2.7557273661174726e-07, 2.5105206475334834e-08, 2.091467944897855e-09});
}
Expr expm1_of_rest(Expr r) { return fma(r * r, exp_tail(r), r); }
// x = whole * ln 2 + rest.
struct Reduced {
  Expr whole, rest;
};
Reduced reduce_by_ln2(Expr x) {
  Expr whole = rint(x * log2_e);
  return {whole, fma(whole, -ln2_low, fma(whole, -ln2_high, x))};
}
Expr exp(Expr x, Expr) {
  Reduced reduced = reduce_by_ln2(clamp(x, -746, 710));
  return times_power_of_two(expm1_of_rest(reduced.rest) + 1, reduced.whole);
}
// Returns e^(x + low) within about 0.6 ULP, and exactly where the exact value is an f64.
Expr exp_of_sum(Expr x, Expr low) {
  Expr within = clamp(x, -746, 710), whole = rint(within * log2_e);
  Expr high = fma(whole, -ln2_high, within), subtracted = whole * ln2_low, r = high - subtracted;
  Expr lost = low + ((high - r) - subtracted);
  Expr tail = r * r * exp_tail(r), sum = r + 1, sum_low = r - (sum - 1);
  return times_power_of_two(sum + (sum_low + fma(lost, sum + tail, tail)), whole);
}
Expr exp2(Expr x, Expr) {
  Expr within = clamp(x, -1080, 1025), whole = rint(within);
  return times_power_of_two(expm1_of_rest((within - whole) * (ln2_high + ln2_low)) + 1, whole);
}
Expr expm1(Expr x, Expr) {
  Reduced reduced = reduce_by_ln2(clamp(x, -100, 710));
  Expr less_one = expm1_of_rest(reduced.rest);
  Expr power = power_of_two(minimum(reduced.whole, constant_like(x, 1000)));
  Expr result = select(reduced.whole > 60.0, times_power_of_two(less_one + 1, reduced.whole),
                       fma(power, less_one, power - 1));
  return select(abs(x) < 0x1p-54, x, result);
}

// x = 2^exponent * (1 + f) for positive finite x, with 1 + f in [sqrt(1/2), sqrt(2)).
struct Mantissa {
  Expr exponent, f;
};
Mantissa mantissa_of(Expr x) {
  Expr tiny = x < 0x1p-1022;
  Expr bits = bitcast(select(tiny, x * 0x1p54, x), DType::i64);
  Expr root = bits.code->integer(DType::i64, 0x3fe6a09e667f3bcd);
  Expr biased = (bits - root + bits.code->integer(DType::i64, 0x4000000000000000)) >> 52;
  Expr whole = biased - bits.code->integer(DType::i64, 1024);
  Expr mantissa = bitcast(bits - (whole << 52), DType::f64);
  Expr exponent = convert(whole, DType::f64) - select(tiny, constant_like(x, 54), 0.0);
  return {exponent, mantissa - 1};
}
// log((1 + s) / (1 - s)) = 2 s + s z (2/3 + z p(z)) with z = s^2.
constexpr double two_thirds = 0.6666666666666666, two_thirds_low = 3.700743415417188e-17;
Expr log_tail_rest(Expr z) {
  return polynomial(
      z, {0.4000000000000088, 0.2857142857080361, 0.22222222391714744, 0.18181795640044723,
          0.15386239707611124, 0.13268773010203216, 0.13086627491197242});
}
Expr log_tail(Expr z) { return z * fma(z, log_tail_rest(z), constant_like(z, two_thirds)); }
// LogOfMantissa holds log(1 + f) = f - (square - s * (square + tail)) without its term f.
struct LogOfMantissa {
  Expr square, rest;
  Expr all(Expr f, Expr low) const { return f - (square - (rest + low)); }
};
LogOfMantissa log_of_mantissa(Expr f) {
  Expr s = f / (f + 2), square = f * f * 0.5;
  return {square, s * (square + log_tail(s * s))};
}
// Returns `result` where x is positive and finite, and the limit or nan elsewhere.
Expr of_logarithm(Expr x, Expr result) {
  Expr above = select(x < infinity, result, x);
  Expr below = select(x == 0.0, constant_like(x, -infinity), constant_like(x, not_a_number));
  return select(x <= 0.0, below, above);
}
Expr log(Expr x, Expr) {
  Mantissa m = mantissa_of(x);
  Expr of_rest = log_of_mantissa(m.f).all(m.f, m.exponent * ln2_low);
  return of_logarithm(x, fma(m.exponent, ln2_high, of_rest));
}
Expr log2(Expr x, Expr) {
  Mantissa m = mantissa_of(x);
  Expr of_rest = log_of_mantissa(m.f).all(m.f, constant_like(x, 0));
  return of_logarithm(x, fma(of_rest, log2_e, m.exponent));
}
Expr log10(Expr x, Expr) {
  Mantissa m = mantissa_of(x);
  Expr of_rest = log_of_mantissa(m.f).all(m.f, constant_like(x, 0));
  Expr low = fma(of_rest, log10_e, m.exponent * log10_2_low);
  return of_logarithm(x, fma(m.exponent, log10_2_high, low));
}
Expr log1p(Expr x, Expr) {
  Expr one_more = x + 1;
  Expr lost = x - (one_more - 1);
  Expr regular = (one_more > 0.0) & (x < infinity);
  Expr result = call("log", one_more) + select(regular, lost / one_more, 0.0);
  return select(abs(x) < 0x1p-54, x, result);
}

constexpr double far = 22;  // e^-2x is negligible beside 1 above it
Expr sinh(Expr x, Expr) {
  Expr size = abs(x), less_one = call("expm1", minimum(size, constant_like(x, far)));
  Expr half = call("exp", size * 0.5);
  Expr near = (less_one + less_one / (less_one + 1)) * 0.5;
  return with_sign_of(x, select(size > far, half * 0.5 * half, near));
}
Expr cosh(Expr x, Expr) {
  Expr size = abs(x), power = call("exp", minimum(size, constant_like(x, far)));
  Expr half = call("exp", size * 0.5);
  return select(size > far, half * 0.5 * half, (power + 1 / power) * 0.5);
}
Expr tanh(Expr x, Expr) {
  Expr less_one = call("expm1", minimum(abs(x), constant_like(x, far)) * 2);
  return with_sign_of(x, less_one / (less_one + 2));
}
constexpr double huge = 0x1p28;  // x * x + 1 rounds to x * x from here on
Expr log_of_double(Expr x) { return call("log", x) + (ln2_high + ln2_low); }
Expr asinh(Expr x, Expr) {
  Expr size = abs(x), square = size * size;
  Expr near = call("log1p", size + square / (sqrt(square + 1) + 1));
  return with_sign_of(x, select(size < huge, near, log_of_double(size)));
}
Expr acosh(Expr x, Expr) {
  Expr more = x - 1;
  Expr near = call("log1p", more + sqrt(more * 2 + more * more));
  return select(x < 1.0, not_a_number, select(x < huge, near, log_of_double(x)));
}
Expr atanh(Expr x, Expr) {
  Expr size = abs(x);
  return with_sign_of(x, call("log1p", size * 2 / (1 - size)) * 0.5);
}

// Adds the arctangent of a small t to 0, pi / 4 or pi / 2.
Expr atan(Expr x, Expr) {
  Expr size = abs(x);
  Expr middle = size > 0.41421356237309503, steep = size > 2.414213562373095;
  Expr to_middle = (size - 1) / (size + 1), to_steep = -1 / size;
  Expr t = select(steep, to_steep, select(middle, to_middle, size));
  auto part = [&](double of_right_angle) {
    return select(steep, constant_like(x, of_right_angle),
                  select(middle, constant_like(x, of_right_angle / 2), 0.0));
  };
  Expr z = t * t;
  Expr p = polynomial(
      z, {-0.3333333333333333, 0.19999999999999804, -0.14285714285659828, 0.111111111051554,
          -0.09090908753498572, 0.07692296374965499, -0.06666424884541275, 0.05878928984071892,
          -0.05230454169285298, 0.04551592758246219, -0.03457055008991637, 0.016285743676675443});
  return with_sign_of(x, part(half_pi) + (t + fma(p, z * t, part(half_pi_low))));
}
Expr asin(Expr x, Expr) { return call("atan", x / sqrt((1 - x) * (x + 1))); }
Expr acos(Expr x, Expr) { return call("atan", sqrt((1 - x) / (x + 1))) * 2; }
Expr atan2(Expr y, Expr x) {
  Expr up = abs(y), right = abs(x);
  Expr equal = select(up == 0.0, constant_like(x, 0), constant_like(x, 1));
  Expr angle = call("atan", select(up == right, equal, up / right));
  Expr result = select(is_negative(x), pi - (angle - 2 * half_pi_low), angle);
  return select(is_nan(x) | is_nan(y), not_a_number, with_sign_of(y, result));
}

Expr erf_near(Expr x) {  // |x| <= 1
  Expr p = polynomial(
      x * x, {0.1283791670955126, -0.3761263890318375, 0.11283791670954879, -0.026866170645076792,
              0.005223977624818009, -0.0008548326980833481, 0.00012055331111630954,
              -1.4925595266536938e-05, 1.6461000479222474e-06, -1.6350312647314057e-07,
              1.4659774901013782e-08, -1.1372847372286958e-09, 5.957173567864956e-11});
  return fma(p, x, x);
}
// The polynomial is (1 + 2 x) e^(x^2) erfc(x) in powers of (x - 4) / (x + 4) (Shepherd and
// Laframboise 1981).
Expr erfc(Expr x, Expr) {
  Expr size = minimum(abs(x), constant_like(x, 28));
  Expr p = polynomial((size - 4) / (size + 4),
                      {1.2329951186255526,     -0.13962111684056253,    0.015379652102619027,
                       0.0680970542546948,     -0.10103906603625375,    0.09373283499828751,
                       -0.06633036581360713,   0.03716751553818893,     -0.01619773403826592,
                       0.0050319699756138135,  -0.0007577734486762808,  -0.00019925671345040716,
                       0.00015062249512264785, -2.4398983809134553e-05, -1.12247322473501e-05,
                       5.7086428044048145e-06, 2.9955790685567077e-07,  -8.22559563206072e-07,
                       6.702452833728971e-08,  1.0568025135820959e-07,  -1.2224048303152388e-08,
                       -1.0476718674667371e-08});
  Expr square = size * size, lost = fma(size, size, -square);
  Expr power = call("exp", -square);
  Expr rest = fma(power, -lost, power) * (p / (size * 2 + 1));
  return select(size < 0.5, 1 - erf_near(x), select(is_negative(x), 2 - rest, rest));
}
Expr erf(Expr x, Expr) {
  Expr far = with_sign_of(x, 1 - call("erfc", abs(x)));
  return select(abs(x) < 1.0, erf_near(x), far);
}

// Computes the logarithm in two parts, as its error grows with the product.
Expr pow(Expr x, Expr y) {
  Expr size = abs(x);
  Mantissa m = mantissa_of(size);
  Expr below = m.f + 2, below_low = m.f - (below - 2);
  Expr s = m.f / below;
  Expr s_low = (fma(-s, below, m.f) - s * below_low) / below;
  // 2 s^3 / 3 needs two parts, too; the rest of log_tail is small.
  Expr z = s * s, z_low = fma(s, s, -z) + s * s_low * 2;
  Expr cube = s * z, cube_low = fma(s, z, -cube) + (s * z_low + s_low * z);
  Expr third = cube * two_thirds;
  Expr third_low = fma(cube, two_thirds, -third) + (cube * two_thirds_low + cube_low * two_thirds);
  Expr tail = s * z * z * log_tail_rest(z);
  Expr whole = m.exponent * ln2_high, first = whole + s * 2, sum = first + third;
  Expr lost = (s * 2 - (first - whole)) + (third - (sum - first));
  Expr rest = lost + (m.exponent * ln2_low + s_low * 2) + (third_low + tail);
  Expr high = sum + rest, low = rest - (high - sum);
  Expr regular = (size > 0.0) & (size < infinity);
  Expr limit = select(size == 0.0, constant_like(x, -infinity), size);
  Expr product = y * select(regular, high, limit);
  Expr within = abs(product) < 800.0;
  Expr product_low = fma(y, high, -product) + y * low;
  Expr is_one = size == 1.0;
  Expr result = exp_of_sum(select(is_one, constant_like(x, 0), product),
                           select(within & !is_one, product_low, 0.0));

  Expr is_whole = rint(y) == y, half = y * 0.5;
  Expr odd = is_whole & (rint(half) != half);
  Expr sign = select(odd & is_negative(x), constant_like(x, -1), constant_like(x, 1));
  Expr undefined = ((x < 0.0) & (x > -infinity) & !is_whole) | is_nan(x) | (is_nan(y) & (x != 1.0));
  return select(y == 0.0, 1.0, select(undefined, not_a_number, result * sign));
}

// x = 2^(3 q) m with m in [0.35, 2.83). The linear guess is within 8 % of the cube root of m, two
// steps of Halley's method within 1e-11; one of Newton's method follows.
Expr cbrt(Expr x, Expr) {
  Expr size = abs(x);
  Mantissa parts = mantissa_of(size);
  Expr q = rint(parts.exponent * (1.0 / 3));
  Expr m = (parts.f + 1) * power_of_two(parts.exponent - q * 3);
  Expr root = m * 0.31 + 0.62;
  for (int i = 0; i < 2; ++i) {
    Expr cube = root * root * root;
    root = root * (cube + m * 2) / (cube * 2 + m);
  }
  root = root + (m / (root * root) - root) * (1.0 / 3);
  Expr regular = (size > 0.0) & (size < infinity);
  return select(regular, with_sign_of(x, root * power_of_two(q)), x);
}

Expr near_sin(Expr r, Expr) {
  Expr z = r * r;
  Expr p = polynomial(z, {-0.16666666666666666, 0.008333333333333331, -0.00019841269841265065,
                          2.755731921933915e-06, -2.505210623244143e-08, 1.605853161801165e-10,
                          -7.586697060262238e-13});
  return select(r == 0.0, r, fma(p, z * r, r));  // keeps -0
}
Expr near_cos(Expr r, Expr) {
  Expr z = r * r, half = z * 0.5, near = 1 - half;
  Expr p = polynomial(z, {0.041666666666666664, -0.0013888888888887398, 2.4801587298765676e-05,
                          -2.755731727172422e-07, 2.087614626724125e-09, -1.1382632341807577e-11});
  return near + fma(p, z * z, (1 - near) - half);
}

constexpr F64Formula formulas[] = {
    {"exp", false, exp},           {"exp2", false, exp2},
    {"expm1", false, expm1},       {"log", false, log},
    {"log2", false, log2},         {"log10", false, log10},
    {"log1p", false, log1p},       {"sinh", false, sinh},
    {"cosh", false, cosh},         {"tanh", false, tanh},
    {"asinh", false, asinh},       {"acosh", false, acosh},
    {"atanh", false, atanh},       {"atan", false, atan},
    {"asin", false, asin},         {"acos", false, acos},
    {"atan2", true, atan2},        {"erfc", false, erfc},
    {"erf", false, erf},           {"pow", true, pow},
    {"cbrt", false, cbrt},         {"near_sin", false, near_sin},
    {"near_cos", false, near_cos},
};
}  // namespace

std::span<const F64Formula> f64_formulas() { return formulas; }

}  // namespace weft::loop
