// The polynomials are minimax fits computed for this file, with coefficients rounded to the type.
#include "weft/codegen/vector_math.h"

#include <algorithm>
#include <initializer_list>
#include <iterator>
#include <limits>

namespace weft::loop {
namespace {
constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();
constexpr double round_magic =
    0x1.8p23;  // x + round_magic holds x, rounded to a whole number, in its low bits
constexpr double round_magic_f64 = 0x1.8p52;
constexpr double log2_e = 1.4426950408889634;
constexpr double log10_2 = 0.3010299956639812;
constexpr double ln2_high = 0.693145751953125, ln2_low = 1.4286068203094172e-06;
constexpr int64_t sign_bit = -0x80000000ll;

Expr polynomial(Expr x, std::initializer_list<double> coefficients) {  // in ascending powers
  auto it = coefficients.end();
  Expr sum = constant_like(x, *--it);
  while (it != coefficients.begin()) sum = fma(sum, x, *--it);
  return sum;
}

// Gives the f32 result of an odd function the sign of x. `result` is positive or has that sign
// already, except perhaps where it is zero.
Expr with_sign_of(Expr x, Expr result) {
  Expr sign = bitcast(x, DType::i32) & sign_bit;
  return bitcast(bitcast(result, DType::i32) | sign, DType::f32);
}

// x = whole * ln 2 + rest; `shifted` holds `whole` in its low bits.
struct Reduced {
  Expr shifted, whole, rest;
};
Reduced reduce_by_ln2(Expr x) {
  Expr shifted = fma(x, log2_e, constant_like(x, round_magic));
  Expr whole = shifted - round_magic;
  Expr rest = fma(whole, -ln2_high, x);
  return {shifted, whole, fma(whole, -ln2_low, rest)};
}
Expr exp_of_rest(Expr r) {  // e^r - 1, |r| <= ln 2 / 2
  Expr p = polynomial(r, {0.5, 0.1666652, 0.041666385, 0.008368849, 0.0013942214});
  return fma(r * r, p, r);
}

// Returns the bits of e^x where that is a normal number, which is certain for |x| < 87.
Expr exp_bits(Expr x) {
  Reduced reduced = reduce_by_ln2(x);
  Expr p = exp_of_rest(reduced.rest) + 1;
  return bitcast(p, DType::i32) + (bitcast(reduced.shifted, DType::i32) << 23);
}
Expr exp_in_range(Expr x) { return bitcast(exp_bits(x), DType::f32); }

Expr clamp(Expr x, double low, double high) {
  return minimum(maximum(x, constant_like(x, low)), constant_like(x, high));
}

// Arithmetic that gives a subnormal, such as e^x of a masked score, takes a CPU 200 cycles
// per vector. So the bits of a subnormal result are computed as an integer: the number of units of
// 2^-149.
Expr exp_f32(Expr x) {
  constexpr double least_normal = -87.33654, most = 88.72283;  // e^x is a normal number between
  Expr bits = exp_bits(maximum(x, constant_like(x, -104)));
  Expr steps = bitcast(bits + constant_like(bits, 149 << 23), DType::f32) + 0x1p23;
  Expr tiny = bitcast(steps, DType::i32) - bitcast(constant_like(x, 0x1p23), DType::i32);
  Expr result = bitcast(select(x < least_normal, tiny, bits), DType::f32);
  return select(x <= most, result, x * infinity);  // nan: nan
}

Expr expm1_f32(Expr x) {
  Reduced reduced = reduce_by_ln2(clamp(x, -80, 89));
  Expr r = reduced.rest;
  Expr p = polynomial(r, {0.5, 0.16666543, 0.04166641, 0.008366576, 0.001393999});
  Expr less_one = fma(r * r, p, r);
  Expr power = scale(constant_like(x, 1), reduced.whole);
  Expr near = fma(power, less_one, power - 1);
  return with_sign_of(x, select(reduced.whole > 24.0, scale(less_one + 1, reduced.whole), near));
}

// Returns the log of a positive normal number that is not infinite.
Expr log_in_range(Expr x, Expr exponent_offset) {
  // mantissa is in [sqrt(1/2), sqrt(2)), and biased is the exponent of x / sqrt(1/2), biased by
  // 128.
  Expr bits = bitcast(x, DType::i32);
  Expr biased = (bits + constant_like(bits, 0x40000000 - 0x3f3504f3)) >> 23;
  Expr mantissa = bitcast(bits - (biased << 23) + constant_like(bits, 0x40000000), DType::f32);
  Expr exponent = convert(biased, DType::f32) + exponent_offset;
  Expr f = mantissa - 1;
  Expr f2 = f * f;
  Expr p = polynomial(f, {0.33333316, -0.25000817, 0.2000231, -0.16624336, 0.14180574, -0.13130464,
                          0.12886545, -0.07860616});
  Expr tail = fma(exponent, ln2_low, p * f * f2);
  tail = fma(f2, -0.5, tail);
  return fma(exponent, ln2_high, f + tail);
}

Expr log_f32(Expr x) {
  Expr tiny = x < 0x1p-126;
  Expr normal = select(tiny, x * 0x1p23, x);
  Expr offset = select(tiny, constant_like(x, -128 - 23), constant_like(x, -128));
  Expr result = select(x < infinity, log_in_range(normal, offset), x);
  Expr below = select(x == 0.0, constant_like(x, -infinity), constant_like(x, not_a_number));
  return select(x <= 0.0, below, result);
}

Expr log1p_f32(Expr x) {
  Expr one_more = x + 1;
  Expr lost = x - (one_more - 1);
  Expr regular = (one_more > 0.0) & (x < infinity);
  return with_sign_of(x, log_f32(one_more) + select(regular, lost / one_more, 0.0));
}

Expr tanh_f32(Expr x) {
  Expr z = x * x;
  Expr p = polynomial(z, {-0.33333284, 0.13331485, -0.053743005, 0.020649103, -0.005715499});
  Expr near = fma(p, z * x, x);
  Expr magnitude = minimum(abs(x), constant_like(x, 10));
  Expr far = 1 - 2 / (exp_in_range(magnitude * 2) + 1);
  return with_sign_of(x, select(magnitude >= 0.625, far, near));  // nan: near
}

Expr erf_f32(Expr x) {
  Expr magnitude = minimum(abs(x), constant_like(x, 4));
  Expr z = magnitude * magnitude;
  Expr p = polynomial(
      z, {0.128379126, -0.376123438, 0.112803167, -0.0267150542, 0.00492176203, -0.000564805987});
  Expr near = fma(p, x, x);
  // The fourth root of 1 - erf is nearly linear; the odd and the even powers of its polynomial are
  // two short dependency chains.
  Expr odd = polynomial(z, {-0.291934073, -0.0136600202, -0.011586234, 0.000224230884});
  Expr even =
      polynomial(z, {1.00183177, -0.0966924652, 0.0411461405, 0.00046537898, -2.52202426e-05});
  Expr root = fma(odd, magnitude, even);
  Expr square = root * root;
  Expr far = fma(-square, square, constant_like(x, 1));
  return select(magnitude >= 1.0, with_sign_of(x, far), near);
}

// Turns is x modulo quarter turns (Payne and Hanek 1983): x is multiplied by 29 bits of 2/pi at a
// time, which is exact, and each product drops its whole turns.
struct Turns {
  Expr quadrant;  // i32, mod 4
  Expr rest;      // radians, f32, |rest| <= pi / 4
};
Turns quarter_turns(Expr x) {
  constexpr double near[] = {0x1.45f306dp-1, 0x1.9391054p-30, 0x1.4fe13abp-59,
                             0x1.d1f534ddc0db6p-88};
  constexpr double far[] = {0x1.529fc27p-4, 0x1.5f47d4dp-34, 0x1.bb81b6cp-65,
                            0x1.4acc9e21c821p-95};  // 2^48 * 2/pi mod 4
  Expr wide = convert(x, DType::f64);
  Expr huge = abs(wide) >= 0x1p71;
  Expr scaled = select(huge, wide * 0x1p-48, wide);
  std::array<Expr, 4> part;
  for (size_t i = 0; i < 4; ++i) {
    Expr product = scaled * select(huge, constant_like(wide, far[i]), constant_like(wide, near[i]));
    part[i] = product - rint(product * 0.25) * 4;
  }
  Expr shifted = (part[0] + part[1] + part[2]) + round_magic_f64;
  Expr whole = shifted - round_magic_f64;
  Expr rest = (part[0] - whole) + part[1] + part[2] + part[3];
  Expr radians = convert(rest * 1.5707963267948966, DType::f32);
  return {convert(bitcast(shifted, DType::i64), DType::i32), radians};
}

// Returns sin(rest + quadrant * pi / 2).
Expr sin_of(Turns turns) {
  Expr r = turns.rest, z = r * r;
  Expr sine = fma(polynomial(z, {-0.16666655, 0.00833219, -0.00019518408}), z * r, r);
  Expr q = polynomial(z, {0.041666646, -0.0013887301, 2.4430668e-05});
  Expr cosine = fma(q, z * z, fma(z, -0.5, constant_like(z, 1)));
  Expr value = select((turns.quadrant & int64_t{1}) != 0.0, cosine, sine);
  Expr sign = (turns.quadrant & int64_t{2}) << 30;
  return bitcast(bitcast(value, DType::i32) ^ sign, DType::f32);
}

// Returns log2 of a positive normal f64.
Expr log2_f64(Expr x) {
  Expr bits = bitcast(x, DType::i64);
  Expr offset = bits.code->integer(DType::i64, 0x4000000000000000 - 0x3fe6a09e667f3bcd);
  Expr biased = (bits + offset) >> 52;
  Expr mantissa = bitcast(
      bits - (biased << 52) + bits.code->integer(DType::i64, 0x4000000000000000), DType::f64);
  Expr s = (mantissa - 1) / (mantissa + 1);
  Expr p = polynomial(
      s * s, {2.885390081777926, 0.9617966939267328, 0.5770780164442307, 0.41219850658820667,
              0.3206100303390322, 0.26162585833924373, 0.24094665617144212});
  return fma(s, p, convert(convert(biased, DType::i32), DType::f64) - 1024);
}
// Returns 2^x where that is a normal f64.
Expr exp2_f64(Expr x) {
  Expr shifted = x + round_magic_f64;
  Expr f = x - (shifted - round_magic_f64);
  Expr p = polynomial(
      f, {1.0, 0.6931471805413586, 0.24022651080439886, 0.05550410963733604, 0.009618036170115796,
          0.0013333429762637803, 0.00015467365398030443, 1.531519636072551e-05});
  return bitcast(bitcast(p, DType::i64) + (bitcast(shifted, DType::i64) << 52), DType::f64);
}
// Returns log2 of |x| as f64, for any f32 x but nan.
Expr log2_of_magnitude(Expr x) {
  Expr magnitude = convert(abs(x), DType::f64);
  return select(magnitude == 0.0, -infinity,
                select(magnitude < infinity, log2_f64(magnitude), infinity));
}
// Computes in f64, so that logarithms of powers of 2 and 10 are whole numbers.
Expr logarithm_f32(Expr x, double scale) {
  Expr result = convert(log2_of_magnitude(x) * scale, DType::f32);
  return select((x < 0.0) | is_nan(x), not_a_number, result);
}
Expr log2_f32(Expr x) { return logarithm_f32(x, 1); }
Expr log10_f32(Expr x) { return logarithm_f32(x, log10_2); }
Expr exp2_f32(Expr x) {
  return convert(exp2_f64(clamp(convert(x, DType::f64), -300, 300)), DType::f32);
}

Expr pow_f32(Expr x, Expr y) {
  Expr magnitude = convert(abs(x), DType::f64), power = convert(y, DType::f64);
  Expr logarithm = log2_of_magnitude(x);
  Expr product = select(magnitude == 1.0, 0.0, power * logarithm);
  Expr result = convert(exp2_f64(clamp(product, -300, 300)), DType::f32);
  Expr whole = rint(y) == y;
  Expr half = y * 0.5;
  Expr odd = whole & (rint(half) != half);
  Expr negative = bitcast(x, DType::i32) < 0.0;
  Expr sign = select(odd & negative, constant_like(x, -1), constant_like(x, 1));
  Expr undefined = ((x < 0.0) & (x > -infinity) & !whole) | is_nan(x) | (is_nan(y) & (x != 1.0));
  return select(y == 0.0, 1.0, select(undefined, not_a_number, result * sign));
}
Expr sin_f32(Expr x) { return select(x == 0.0, x, sin_of(quarter_turns(x))); }
Expr cos_f32(Expr x) {
  Turns turns = quarter_turns(x);
  turns.quadrant = turns.quadrant + constant_like(turns.quadrant, 1);
  return sin_of(turns);
}

// Formula is a function that is faster as a formula than as a call per lane. With Maths::called the
// compiler's own function is faster still, except where `always` is set.
struct Formula {
  std::string_view name;
  Expr (*of)(Expr x);
  bool in_f64 = false;
};
constexpr Formula formulas[] = {
    {"exp", exp_f32},         {"expm1", expm1_f32},     {"log", log_f32},
    {"log1p", log1p_f32},     {"tanh", tanh_f32},       {"erf", erf_f32},
    {"exp2", exp2_f32, true}, {"log2", log2_f32, true}, {"log10", log10_f32, true},
    {"sin", sin_f32, true},   {"cos", cos_f32, true},
};

// Computes floor_divide without f64: the sign of the remainder shows whether the quotient was
// rounded across an integer. Every f32 quotient from 2^23 on is an integer.
Expr single_floor_divide(Expr a, Expr b) {
  const Expr quotient = floor(a / b), left = fma(-quotient, b, a);
  const Expr less = ((left < 0.0) & (b > 0.0)) | ((left > 0.0) & (b < 0.0));
  const Expr more = abs(left) >= abs(b);
  const Expr exact = select(less, quotient - 1, select(more, quotient + 1, quotient));
  return floored_quotient(a, b, select(abs(quotient) < 0x1p23, exact, quotient));
}
Expr single_remainder(Expr a, Expr b) { return floored_rest(b, call("fmod", a, b)); }
Expr single_atan2(Expr y, Expr x) { return call("atan2", y, x); }

// FormulaOfTwo is a formula of an operation of two f32: for kernels that must not use f64
// (is_single), or for kernels that may.
struct FormulaOfTwo {
  std::string_view name;
  Expr (*of)(Expr a, Expr b);
  bool is_single = true;
};
constexpr FormulaOfTwo formulas_of_two[] = {
    {"pow", pow_f32, false},
    {"floor_divide", single_floor_divide},
    {"remainder", single_remainder},
    {"atan2", single_atan2},
};
}  // namespace

Expr function(std::string_view name, Expr x) {
  if (is_instruction(name)) return intrinsic(name, x);
  if (x.type() != DType::f32) return convert(call(name, convert(x, DType::f64)), x.type());
  const auto* formula = std::ranges::find(formulas, name, &Formula::name);
  const bool has_formula = formula != std::end(formulas);
  const bool in_f64 = !has_formula || formula->in_f64;
  const Maths maths = x.code->kernel().maths;
  if (maths == (in_f64 ? Maths::single : Maths::called)) return call(name, x);
  return has_formula ? formula->of(x) : convert(call(name, convert(x, DType::f64)), DType::f32);
}
std::optional<Expr> formula(std::string_view op, std::span<const Expr> x) {
  if (x[0].type() != DType::f32) return {};
  const bool is_single = x[0].code->kernel().maths == Maths::single;
  const auto* found = std::ranges::find(formulas_of_two, op, &FormulaOfTwo::name);
  if (found == std::end(formulas_of_two) || found->is_single != is_single) return {};
  return found->of(x[0], x[1]);
}

}  // namespace weft::loop
