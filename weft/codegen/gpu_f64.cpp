#include "weft/codegen/gpu_f64.h"

#include <algorithm>
#include <array>
#include <iterator>

#include <fmt/format.h>

#include "weft/base/error.h"
#include "weft/codegen/f64_math.h"
#include "weft/codegen/gpu_scalar.h"

namespace weft::loop {
namespace {

constexpr const char* by_instructions = R"(
typedef double f64;
#ifdef __OPENCL_VERSION__
#define f64_of_i64(x) as_double(x)
#define i64_of_f64(x) as_long(x)
#endif
#define F64(number, bits) number
#define F64_INFINITY f64_of_i64(0x7ff0000000000000)
#define F64_NAN f64_of_i64(0x7ff8000000000000)
#define add_f64(a, b) ((a) + (b))
#define sub_f64(a, b) ((a) - (b))
#define mul_f64(a, b) ((a) * (b))
#define div_f64(a, b) ((a) / (b))
#define fma_f64 fma
#define sqrt_f64 sqrt
#define floor_f64 floor
#define ceil_f64 ceil
#define trunc_f64 trunc
#define rint_f64 rint
#define neg_f64(x) (-(x))
#define abs_f64 fabs
#define equal_f64(a, b) ((a) == (b))
#define not_equal_f64(a, b) ((a) != (b))
#define less_f64(a, b) ((a) < (b))
#define less_equal_f64(a, b) ((a) <= (b))
#define greater_f64(a, b) ((a) > (b))
#define greater_equal_f64(a, b) ((a) >= (b))
#define bool_to_f64(x) ((f64)(x))
#define u8_to_f64(x) ((f64)(x))
#define i8_to_f64(x) ((f64)(x))
#define i16_to_f64(x) ((f64)(x))
#define i32_to_f64(x) ((f64)(x))
#define i64_to_f64(x) ((f64)(x))
#define f32_to_f64(x) ((f64)(x))
#define f64_to_f32(x) ((f32)(x))
#define f64_to_bool(x) ((x) != 0)
TO_INTEGERS(f64)
)";

// f64 is a struct, so that integer arithmetic cannot be applied to it by mistake.
constexpr const char* by_integers = R"(
#define FUNCTION static __attribute__((noinline))
#define SIGN_F64 0x8000000000000000ul
#define INFINITE_F64 0x7ff0000000000000ul
typedef struct { u64 bits; } f64;
DEVICE f64 f64_of_i64(i64 x) {
  const f64 y = {(u64)x};
  return y;
}
DEVICE i64 i64_of_f64(f64 x) { return (i64)x.bits; }
#define F64(number, bits) f64_of_i64(bits)
#define F64_INFINITY f64_of_i64(INFINITE_F64)
#define F64_NAN f64_of_i64(0x7ff8000000000000ul)

DEVICE u64 size_f64(f64 x) { return x.bits & ~SIGN_F64; }
DEVICE u64 sign_f64(f64 x) { return x.bits & SIGN_F64; }
DEVICE bool is_nan_f64(f64 x) { return size_f64(x) > INFINITE_F64; }
DEVICE f64 neg_f64(f64 x) { return f64_of_i64((i64)(x.bits ^ SIGN_F64)); }
DEVICE f64 abs_f64(f64 x) { return f64_of_i64((i64)size_f64(x)); }

// A number is fraction * 2^(exponent - 1086). Where the fraction's top bit is set, the exponent is
// the one that the format stores.
typedef struct { u64 fraction; i32 exponent; } Parts;
DEVICE Parts parts_f64(f64 x) {
  const i32 stored = (i32)(size_f64(x) >> 52);
  const u64 fraction = x.bits << 11 & ~SIGN_F64;
  const Parts parts = {stored > 0 ? fraction | SIGN_F64 : fraction, stored > 0 ? stored : 1};
  return parts;
}
// With the top bit set, of a number that is not 0.
DEVICE Parts normal_f64(f64 x) {
  Parts parts = parts_f64(x);
  const i32 zeros = (i32)clz(parts.fraction);
  parts.fraction <<= zeros;
  parts.exponent -= zeros;
  return parts;
}
// The last bit stands for all that are dropped.
DEVICE u64 shifted_right(u64 x, i32 bits) {
  if (bits > 63) return x != 0;
  return bits == 0 ? x : x >> bits | ((x << (64 - bits)) != 0);
}
// `fraction` without its last `bits`, to the nearest.
DEVICE u64 rounded_off(u64 fraction, i32 bits) {
  const u64 middle = (u64)1 << (bits - 1), kept = fraction >> bits;
  const u64 rest = fraction & (2 * middle - 1);
  return kept + (rest > middle || (rest == middle && (kept & 1) != 0));
}
// A fraction that carries into the exponent's bits gives the next one, or infinity.
FUNCTION f64 rounded_f64(u64 sign, i32 exponent, u64 fraction) {
  if (fraction == 0) return f64_of_i64((i64)sign);
  const i32 zeros = (i32)clz(fraction);
  fraction <<= zeros;
  exponent -= zeros;
  if (exponent >= 2047) return f64_of_i64((i64)(sign | INFINITE_F64));
  if (exponent <= 0) fraction = shifted_right(fraction, 1 - exponent);
  const u64 below = exponent > 0 ? (u64)(exponent - 1) << 52 : 0;
  return f64_of_i64((i64)(sign | (below + rounded_off(fraction, 11))));
}

// ---- comparisons
DEVICE i64 order_f64(f64 x) {
  return sign_f64(x) != 0 ? -(i64)size_f64(x) : (i64)size_f64(x);
}
DEVICE bool ordered_f64(f64 a, f64 b) { return !is_nan_f64(a) && !is_nan_f64(b); }
DEVICE bool equal_f64(f64 a, f64 b) { return ordered_f64(a, b) && order_f64(a) == order_f64(b); }
DEVICE bool not_equal_f64(f64 a, f64 b) { return !equal_f64(a, b); }
DEVICE bool less_f64(f64 a, f64 b) { return ordered_f64(a, b) && order_f64(a) < order_f64(b); }
DEVICE bool less_equal_f64(f64 a, f64 b) {
  return ordered_f64(a, b) && order_f64(a) <= order_f64(b);
}
DEVICE bool greater_f64(f64 a, f64 b) { return less_f64(b, a); }
DEVICE bool greater_equal_f64(f64 a, f64 b) { return less_equal_f64(b, a); }

// ---- arithmetic
FUNCTION f64 add_f64(f64 a, f64 b) {
  if (size_f64(a) < size_f64(b)) {
    const f64 larger = b;
    b = a;
    a = larger;
  }
  const bool opposite = sign_f64(a) != sign_f64(b);
  if (size_f64(a) >= INFINITE_F64)
    return is_nan_f64(a) || (opposite && size_f64(b) == INFINITE_F64) ? F64_NAN : a;
  const Parts x = parts_f64(a), y = parts_f64(b);
  const u64 left = x.fraction >> 1, right = shifted_right(y.fraction >> 1, x.exponent - y.exponent);
  const u64 sum = opposite ? left - right : left + right;
  return rounded_f64(sum == 0 ? sign_f64(a) & sign_f64(b) : sign_f64(a), x.exponent + 1, sum);
}
DEVICE f64 sub_f64(f64 a, f64 b) { return add_f64(a, neg_f64(b)); }

FUNCTION f64 mul_f64(f64 a, f64 b) {
  const u64 sign = sign_f64(a) ^ sign_f64(b);
  if (size_f64(a) >= INFINITE_F64 || size_f64(b) >= INFINITE_F64) {
    if (!ordered_f64(a, b) || size_f64(a) == 0 || size_f64(b) == 0) return F64_NAN;
    return f64_of_i64((i64)(sign | INFINITE_F64));
  }
  if (size_f64(a) == 0 || size_f64(b) == 0) return f64_of_i64((i64)sign);
  const Parts x = normal_f64(a), y = normal_f64(b);
  const u64 high = mul_hi(x.fraction, y.fraction), low = x.fraction * y.fraction;
  return rounded_f64(sign, x.exponent + y.exponent - 1022, high | (low != 0));
}

FUNCTION f64 div_f64(f64 a, f64 b) {
  const u64 sign = sign_f64(a) ^ sign_f64(b);
  const bool infinite = size_f64(a) == INFINITE_F64, by_infinite = size_f64(b) == INFINITE_F64;
  if (!ordered_f64(a, b) || (infinite && by_infinite) || (size_f64(a) == 0 && size_f64(b) == 0))
    return F64_NAN;
  if (infinite || size_f64(b) == 0) return f64_of_i64((i64)(sign | INFINITE_F64));
  if (by_infinite || size_f64(a) == 0) return f64_of_i64((i64)sign);
  const Parts x = normal_f64(a), y = normal_f64(b);
  u64 rest = x.fraction >> 11, by = y.fraction >> 11, quotient = 0;
  for (i32 bit = 0; bit < 56; ++bit) {
    quotient = quotient << 1 | (rest >= by);
    rest = (rest >= by ? rest - by : rest) << 1;
  }
  return rounded_f64(sign, x.exponent - y.exponent + 1031, quotient | (rest != 0));
}

// Two bits of the number give one of the root.
FUNCTION f64 sqrt_f64(f64 a) {
  if (size_f64(a) == 0 || is_nan_f64(a)) return size_f64(a) == 0 ? a : F64_NAN;
  if (sign_f64(a) != 0) return F64_NAN;
  if (size_f64(a) == INFINITE_F64) return a;
  const Parts x = normal_f64(a);
  const i32 odd = x.exponent & 1;
  u64 from = x.fraction >> odd, rest = 0, root = 0;
  for (i32 bit = 0; bit < 55; ++bit) {
    rest = rest << 2 | from >> 62;
    from <<= 2;
    const u64 trial = root << 2 | 1;
    root = root << 1 | (rest >= trial);
    if (rest >= trial) rest -= trial;
  }
  return rounded_f64(0, (x.exponent - 1086 + odd) / 2 + 1063, root | (rest != 0));
}

// Sums of 128 bits: the product is exact in them.
typedef struct { u64 high, low; } Wide;
DEVICE Wide wide_shifted_right(Wide x, i32 bits) {
  Wide y = x;
  if (bits > 63) {
    y.low = shifted_right(x.high, bits - 64) | (x.low != 0);
    y.high = 0;
  } else if (bits > 0) {
    y.low = shifted_right(x.low, bits) | x.high << (64 - bits);
    y.high = x.high >> bits;
  }
  return y;
}
FUNCTION f64 fma_f64(f64 a, f64 b, f64 c) {
  const bool finite = size_f64(a) < INFINITE_F64 && size_f64(b) < INFINITE_F64;
  if (finite && size_f64(c) >= INFINITE_F64) return is_nan_f64(c) ? F64_NAN : c;
  if (!finite || size_f64(a) == 0 || size_f64(b) == 0) return add_f64(mul_f64(a, b), c);
  if (size_f64(c) == 0) return mul_f64(a, b);
  const Parts x = normal_f64(a), y = normal_f64(b), z = normal_f64(c);
  u64 sign = sign_f64(a) ^ sign_f64(b);
  const bool opposite = sign != sign_f64(c);
  Wide product = {mul_hi(x.fraction, y.fraction), x.fraction * y.fraction};
  Wide other = {z.fraction >> 1, 0};
  i32 exponent = x.exponent + y.exponent - 1021;
  // One bit of room for the carry of the sum; the product ends in zeros.
  product.low = product.low >> 1 | product.high << 63;
  product.high >>= 1;
  const i32 distance = exponent - (z.exponent + 1);
  if (distance >= 0) {
    other = wide_shifted_right(other, distance);
  } else {
    product = wide_shifted_right(product, -distance);
    exponent = z.exponent + 1;
  }
  Wide sum;
  if (!opposite) {
    sum.low = product.low + other.low;
    sum.high = product.high + other.high + (sum.low < other.low);
  } else {
    const bool less =
        product.high < other.high || (product.high == other.high && product.low < other.low);
    const Wide larger = less ? other : product, smaller = less ? product : other;
    sum.low = larger.low - smaller.low;
    sum.high = larger.high - smaller.high - (larger.low < smaller.low);
    if (less) sign ^= SIGN_F64;
    if ((sum.high | sum.low) == 0) return f64_of_i64(0);
  }
  if (sum.high == 0) {
    sum.high = sum.low;
    sum.low = 0;
    exponent -= 64;
  }
  const i32 zeros = (i32)clz(sum.high);
  if (zeros > 0) sum.high = sum.high << zeros | sum.low >> (64 - zeros);
  sum.low <<= zeros;
  return rounded_f64(sign, exponent - zeros, sum.high | (sum.low != 0));
}

// ---- to whole numbers
DEVICE f64 trunc_f64(f64 x) {
  const i32 exponent = (i32)(size_f64(x) >> 52) - 1023;
  if (is_nan_f64(x)) return F64_NAN;
  if (exponent >= 52) return x;
  return f64_of_i64((i64)(exponent < 0 ? sign_f64(x) : x.bits & ~(0xffffffffffffful >> exponent)));
}
DEVICE f64 floor_f64(f64 x) {
  const f64 whole = trunc_f64(x);
  return less_f64(x, whole) ? sub_f64(whole, F64(1.0, 0x3ff0000000000000)) : whole;
}
DEVICE f64 ceil_f64(f64 x) {
  const f64 whole = trunc_f64(x);
  return less_f64(whole, x) ? add_f64(whole, F64(1.0, 0x3ff0000000000000)) : whole;
}
DEVICE f64 rint_f64(f64 x) {
  const f64 magic = F64(0x1p52, 0x4330000000000000);
  if (is_nan_f64(x)) return F64_NAN;
  if (size_f64(x) >= magic.bits) return x;
  return f64_of_i64((i64)(sub_f64(add_f64(abs_f64(x), magic), magic).bits | sign_f64(x)));
}

// ---- conversions
FUNCTION f64 i64_to_f64(i64 x) {
  return rounded_f64(x < 0 ? SIGN_F64 : 0, 1086, x < 0 ? (u64)0 - (u64)x : (u64)x);
}
#define bool_to_f64(x) i64_to_f64(x)
#define u8_to_f64(x) i64_to_f64(x)
#define i8_to_f64(x) i64_to_f64(x)
#define i16_to_f64(x) i64_to_f64(x)
#define i32_to_f64(x) i64_to_f64(x)
FUNCTION i64 f64_to_i64(f64 x) {
  const Parts parts = parts_f64(x);
  if (is_nan_f64(x) || parts.exponent < 1023) return 0;
  if (parts.exponent >= 1086) return sign_f64(x) != 0 ? -0x7fffffffffffffff - 1 : 0x7fffffffffffffff;
  const i64 whole = (i64)(parts.fraction >> (1086 - parts.exponent));
  return sign_f64(x) != 0 ? -whole : whole;
}
#define TO_NARROW(to, least, most) \
  DEVICE to f64_to_##to(f64 x) { \
    const i64 whole = f64_to_i64(x); \
    return (to)(whole < least ? least : whole > most ? most : whole); \
  }
TO_NARROW(u8, 0, 255)
TO_NARROW(i8, -128, 127)
TO_NARROW(i16, -32768, 32767)
TO_NARROW(i32, (-2147483647 - 1), 2147483647)
DEVICE bool f64_to_bool(f64 x) { return size_f64(x) != 0; }
FUNCTION f64 f32_to_f64(f32 x) {
  const u32 bits = (u32)i32_of_f32(x), size = bits & 0x7fffffff;
  const u64 sign = (u64)(bits >> 31) << 63;
  if (size > 0x7f800000) return F64_NAN;
  if (size == 0x7f800000) return f64_of_i64((i64)(sign | INFINITE_F64));
  const i32 stored = (i32)(size >> 23);
  const u32 fraction = size & 0x7fffff;
  return rounded_f64(sign, 1086 - 150 + (stored > 0 ? stored : 1),
                     stored > 0 ? fraction | 0x800000 : fraction);
}
FUNCTION f32 f64_to_f32(f64 x) {
  const u32 sign = (u32)(sign_f64(x) >> 32);
  const Parts parts = parts_f64(x);
  const i32 exponent = parts.exponent - 1023 + 127;
  if (is_nan_f64(x)) return F32_NAN;
  if (exponent >= 255) return f32_of_i32((i32)(sign | 0x7f800000));
  const u64 fraction = exponent > 0 ? parts.fraction : shifted_right(parts.fraction, 1 - exponent);
  const u32 below = exponent > 0 ? (u32)(exponent - 1) << 23 : 0;
  return f32_of_i32((i32)(sign | (below + (u32)rounded_off(fraction, 40))));
}
)";

// Argument reduction uses the 192 bits of 2 / pi whose products with the fraction are not whole
// turns (Payne and Hanek 1983).
constexpr const char* trigonometry = R"(
__constant u64 two_over_pi[] = {
    0, 0,  // what stands before the point, and zeros
    0xa2f9836e4e441529, 0xfc2757d1f534ddc0, 0xdb6295993c439041, 0xfe5163abdebbc561,
    0xb7246e3a424dd2e0, 0x06492eea09d1921c, 0xfe1deb1cb129a73e, 0xe88235f52ebb4484,
    0xe99c7026b45f7e41, 0x3991d639835339f4, 0x9c845f8bbdf9283b, 0x1ff897ffde05980f,
    0xef2f118b5a0a6d1f, 0x6d367ecf27cb09b7, 0x4f463f669e5fea2d, 0x7527bac7ebe5f17b,
    0x3d0739f78a5292ea, 0x6bfb5fb11f8d5d08, 0x56033046fc7b6bab, 0xf0cfbc209af4361d};
DEVICE u64 bits_of_two_over_pi(i32 from) {
  const i32 word = from >> 6, bit = from & 63;
  if (bit == 0) return two_over_pi[word];
  return two_over_pi[word] << bit | two_over_pi[word + 1] >> (64 - bit);
}
// x = quadrant * pi / 2 + rest, |rest| <= pi / 4.
typedef struct { f64 rest; i32 quadrant; } Turns;
FUNCTION Turns turns_f64(f64 x) {
  Turns turns = {x, 0};
  if (size_f64(x) >= INFINITE_F64) turns.rest = F64_NAN;
  if (size_f64(x) >= INFINITE_F64 || less_equal_f64(abs_f64(x), F64(0.7853981633974483, 0x3fe921fb54442d18)))
    return turns;
  const Parts parts = parts_f64(x);
  const i32 from = parts.exponent - 1086 - 2 + 128;
  const u64 w0 = bits_of_two_over_pi(from), w1 = bits_of_two_over_pi(from + 64);
  const u64 w2 = bits_of_two_over_pi(from + 128);
  u64 low = parts.fraction * w1, high = parts.fraction * w0 + mul_hi(parts.fraction, w1);
  const u64 carried = mul_hi(parts.fraction, w2);
  low += carried;
  high += low < carried;
  // Two bits before the point, 126 behind it.
  turns.quadrant = (i32)(high >> 62);
  high = high << 2 | low >> 62;
  low <<= 2;
  const bool beyond = (high & SIGN_F64) != 0;
  if (beyond) {
    turns.quadrant += 1;
    low = (u64)0 - low;
    high = ~high + (low == 0);
  }
  i32 zeros = (i32)clz(high);
  if (high == 0) {
    high = low;
    low = 0;
    zeros = 64 + (i32)clz(high);
  }
  const i32 shift = zeros & 63;
  if (shift > 0) high = high << shift | low >> (64 - shift);
  const u64 radians = mul_hi(high, 0xc90fdaa22168c235ul);
  const u64 sign = (beyond ? SIGN_F64 : 0) ^ sign_f64(x);
  turns.rest = rounded_f64(sign, 1086 - 63 - zeros, radians | 1);
  if (sign_f64(x) != 0) turns.quadrant = -turns.quadrant;
  return turns;
}
FUNCTION f64 turned_sin_f64(f64 rest, i32 quadrant) {
  const f64 value = (quadrant & 1) != 0 ? near_cos_f64(rest) : near_sin_f64(rest);
  return (quadrant & 2) != 0 ? neg_f64(value) : value;
}
FUNCTION f64 sin_f64(f64 x) {
  const Turns turns = turns_f64(x);
  return turned_sin_f64(turns.rest, turns.quadrant);
}
FUNCTION f64 cos_f64(f64 x) {
  const Turns turns = turns_f64(x);
  return turned_sin_f64(turns.rest, turns.quadrant + 1);
}
FUNCTION f64 tan_f64(f64 x) {
  const Turns turns = turns_f64(x);
  return div_f64(turned_sin_f64(turns.rest, turns.quadrant),
                 turned_sin_f64(turns.rest, turns.quadrant + 1));
}
)";

std::string function_text(const F64Formula& formula) {
  Kernel kernel;
  Code code(kernel);
  const Expr x = code.add({.op = Op::load, .type = DType::f64, .operand = 0});
  const Expr y = code.add({.op = Op::load, .type = DType::f64, .operand = 1});
  const Expr result = formula.of(x, y);
  auto ref = [&](int i) -> std::string {
    if (i < 0) return "";
    if (code.at(i).op == Op::constant) return literal(code.at(i));
    return i == x.id ? "x" : i == y.id ? "y" : fmt::format("v{}", i);
  };
  std::string text = fmt::format("FUNCTION f64 {}_f64(f64 x{}) {{\n", formula.name,
                                 formula.has_two ? ", f64 y" : "");
  for (int i = y.id + 1; i <= result.id; ++i) {
    const Instruction& in = code.at(i);
    if (in.op == Op::constant) continue;
    const std::array<std::string, 3> args{ref(in.args[0]), ref(in.args[1]), ref(in.args[2])};
    text += fmt::format("  const {} v{} = {};\n", register_type(in.type), i,
                        arithmetic(in, args, code.at(in.args[0]).type));
  }
  return text + fmt::format("  return {};\n}}\n", ref(result.id));
}

// OpenCL C and CUDA C provide these functions under these names.
constexpr const char* device_functions[] = {
    "exp",   "exp2", "expm1", "log",  "log2",  "log10", "log1p",  "sin",   "cos",
    "tan",   "asin", "acos",  "atan", "sinh",  "cosh",  "tanh",   "asinh", "acosh",
    "atanh", "erf",  "erfc",  "pow",  "atan2", "cbrt",  "lgamma", "logb",  "tgamma"};
bool has_f64_by_integers(std::string_view function) {
  if (function == "sin" || function == "cos" || function == "tan") return true;
  return std::ranges::find(f64_formulas(), function, &F64Formula::name) != f64_formulas().end();
}

constexpr const char* by_either = R"(
// Such that a second rounding to fewer bits gives what one would: truncated, with the last bit set
// if anything was lost.
DEVICE f32 f64_to_odd_f32(f64 x) {
  const f32 nearest = f64_to_f32(x);
  const f64 back = f32_to_f64(nearest);
  const i32 toward_zero = i32_of_f32(nearest) - greater_f64(abs_f64(back), abs_f64(x));
  return f32_of_i32(toward_zero | (less_f64(back, x) || greater_f64(back, x)));
}
PACK(f64, 2, 16)
)";

}  // namespace

void check_device_has(std::string_view function) {
  WEFT_CHECK(std::ranges::find(device_functions, function) != std::end(device_functions),
             "[{0}] GPU kernels call a function by its name in C, and this operation has none. "
             "Hint: define {0} by `decompose`, as an expression of other operations.",
             function);
}

std::string f64_of_device() {
  std::string text = by_instructions;
  for (const char* function : device_functions)
    text += fmt::format("#define {0}_f64 {0}\n", function);
  return text + by_either;
}

std::string f64_of_integers() {
  std::string text = by_integers;
  for (const F64Formula& formula : f64_formulas()) text += function_text(formula);
  for (const char* function : device_functions)
    if (!has_f64_by_integers(function))
      text += fmt::format("#define {0}_f64(x) f32_to_f64({0}(f64_to_f32(x)))\n", function);
  return text + trigonometry + by_either;
}

}  // namespace weft::loop
