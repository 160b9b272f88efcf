#include "weft/base/numbers/dtype.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string>

#include <fmt/format.h>

#include "weft/base/error.h"

namespace weft {
namespace {
using enum DType;
constexpr NumberKind without_sign = NumberKind::without_sign, with_sign = NumberKind::with_sign,
                     floating = NumberKind::floating;
constexpr FloatFormat e4m3{4, 3, false}, e5m2{5, 2}, half{5, 10}, brain{8, 7}, single{8, 23},
    twice{11, 52};
// Sums and products accumulate in at least float32, integers in int64.
constexpr DTypeInfo infos[dtype_count] = {
    {"bool", "BOOL", 8, NumberKind::boolean, boolean, i64},
    {"u8", "U8", 8, without_sign, u8, i64},
    {"i8", "I8", 8, with_sign, i8, i64},
    {"i16", "I16", 16, with_sign, i16, i64},
    {"i32", "I32", 32, with_sign, i32, i64},
    {"i64", "I64", 64, with_sign, i64, i64},
    {"i4x2", "", 8, without_sign, u8, i64, {}, true, 2},
    {"f8_e4m3", "F8_E4M3", 8, floating, f32, f32, e4m3, true},
    {"f8_e5m2", "F8_E5M2", 8, floating, f32, f32, e5m2, true},
    {"f16", "F16", 16, floating, f32, f32, half},
    {"bf16", "BF16", 16, floating, f32, f32, brain},
    {"f32", "F32", 32, floating, f32, f32, single},
    {"f64", "F64", 64, floating, f64, f64, twice},
    {"u16", "U16", 16, without_sign, u16, i64},
    {"u32", "U32", 32, without_sign, u32, i64},
};
}  // namespace

// Rounds directly from double, as rounding through float first would round twice.
uint64_t to_bits(double value, const FloatFormat& format) {
  const uint64_t sign =
      std::signbit(value) ? uint64_t{1} << (format.exponent + format.fraction) : 0;
  const uint64_t all = (uint64_t{1} << (format.exponent + format.fraction)) - 1;  // no sign
  const uint64_t infinity = all >> format.fraction << format.fraction;
  const uint64_t nan =
      format.has_infinities ? infinity | uint64_t{1} << (format.fraction - 1) : all;
  const uint64_t too_large = format.has_infinities ? infinity : all - 1;
  if (std::isnan(value)) return sign | nan;
  if (std::isinf(value)) return sign | too_large;
  // The number is significand x 2^(exponent - 52), as IEEE 754 lays out binary64.
  const auto given = std::bit_cast<uint64_t>(value);
  const auto field = static_cast<int>(given >> 52 & 0x7ff);
  const uint64_t significand = (given & ((uint64_t{1} << 52) - 1)) | uint64_t{field > 0} << 52;
  const int exponent = std::max(field, 1) - 1023;
  const int rounded_exponent = std::max(exponent, format.least_exponent());
  const int dropped = 52 - format.fraction + rounded_exponent - exponent;  // bits
  if (dropped > 53) return sign;
  uint64_t units = significand;
  if (dropped > 0) {
    const uint64_t below_half = (uint64_t{1} << (dropped - 1)) - 1, is_odd = units >> dropped & 1;
    units = (units + below_half + is_odd) >> dropped;
  }
  // A subnormal has no implicit bit: adding the exponent field less one covers both cases, and
  // units that were rounded up to the next power of two.
  const uint64_t bits = units + (static_cast<uint64_t>(rounded_exponent - format.least_exponent())
                                 << format.fraction);
  return sign | std::min(bits, too_large);
}

double from_bits(uint64_t bits, const FloatFormat& format) {
  const uint64_t all = (uint64_t{1} << (format.exponent + format.fraction)) - 1;
  const uint64_t infinity = all >> format.fraction << format.fraction, magnitude = bits & all;
  const double sign = bits > all ? -1 : 1;
  if (format.has_infinities ? magnitude > infinity : magnitude == all)
    return std::copysign(std::numeric_limits<double>::quiet_NaN(), sign);
  if (format.has_infinities && magnitude == infinity)
    return sign * std::numeric_limits<double>::infinity();
  const auto field = static_cast<int>(magnitude >> format.fraction);
  const uint64_t fraction = magnitude & ((uint64_t{1} << format.fraction) - 1);
  const uint64_t units = fraction + (field > 0 ? uint64_t{1} << format.fraction : 0);
  const int exponent = std::max(field, 1) - format.bias() - format.fraction;
  return sign * std::ldexp(static_cast<double>(units), exponent);
}

const DTypeInfo& info(DType dtype) { return infos[static_cast<int>(dtype)]; }

int whole_bits(DType dtype) {
  const DTypeInfo& of = info(dtype);
  if (of.kind == NumberKind::boolean) return 1;
  if (of.kind == NumberKind::floating) return of.format.fraction + 1;
  return of.kind == NumberKind::with_sign ? of.bits - 1 : of.bits;
}

DType parse_dtype(std::string_view text) {
  std::string known;
  for (int i = 0; i < dtype_count; ++i) {
    if (infos[i].name == text) return static_cast<DType>(i);
    known += fmt::format(" {}", infos[i].name);
  }
  throw Error(ErrorKind::usage, "unknown dtype '{}'. Known:{}.", text, known);
}

float to_float(Half value) {
  uint32_t sign = static_cast<uint32_t>(value.bits & 0x8000) << 16;
  uint32_t exponent = (value.bits >> 10) & 0x1f, fraction = value.bits & 0x3ff;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000 | (fraction << 13));
  if (exponent == 0) {
    float magnitude = std::ldexp(static_cast<float>(fraction), -24);
    return sign != 0 ? -magnitude : magnitude;
  }
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (fraction << 13));
}
float to_float(BFloat16 value) {
  return std::bit_cast<float>(static_cast<uint32_t>(value.bits) << 16);
}
Half to_half(double value) { return {static_cast<uint16_t>(to_bits(value, half))}; }
BFloat16 to_bfloat16(double value) { return {static_cast<uint16_t>(to_bits(value, brain))}; }

namespace {
template <class T>
const T& at(const void* data, int64_t index) {
  return static_cast<const T*>(data)[index];
}
template <class T>
T& at(void* data, int64_t index) {
  return static_cast<T*>(data)[index];
}
}  // namespace

double load(const void* data, DType dtype, int64_t i) {
  switch (dtype) {
    case DType::boolean:
      return at<uint8_t>(data, i) != 0;
    case DType::f8_e4m3:
    case DType::f8_e5m2:
      return from_bits(at<uint8_t>(data, i), info(dtype).format);
    case DType::f16:
      return to_float(at<Half>(data, i));
    case DType::bf16:
      return to_float(at<BFloat16>(data, i));
    case DType::f32:
      return at<float>(data, i);
    case DType::f64:
      return at<double>(data, i);
    default:
      return static_cast<double>(load_int(data, dtype, i));
  }
}

void store(void* data, DType dtype, int64_t i, double value) {
  switch (dtype) {
    case DType::boolean:
      at<uint8_t>(data, i) = value != 0;
      return;
    case DType::f8_e4m3:
    case DType::f8_e5m2:
      at<uint8_t>(data, i) = static_cast<uint8_t>(to_bits(value, info(dtype).format));
      return;
    case DType::f16:
      at<Half>(data, i) = to_half(value);
      return;
    case DType::bf16:
      at<BFloat16>(data, i) = to_bfloat16(value);
      return;
    case DType::f32:
      at<float>(data, i) = static_cast<float>(value);
      return;
    case DType::f64:
      at<double>(data, i) = value;
      return;
    default:
      store_int(data, dtype, i, static_cast<int64_t>(value));
  }
}

int64_t load_int(const void* data, DType dtype, int64_t i) {
  switch (dtype) {
    case DType::boolean:
    case DType::u8:
    case DType::i4x2:
      return at<uint8_t>(data, i);
    case DType::i8:
      return at<int8_t>(data, i);
    case DType::u16:
      return at<uint16_t>(data, i);
    case DType::i16:
      return at<int16_t>(data, i);
    case DType::u32:
      return at<uint32_t>(data, i);
    case DType::i32:
      return at<int32_t>(data, i);
    case DType::i64:
      return at<int64_t>(data, i);
    default:
      return static_cast<int64_t>(load(data, dtype, i));
  }
}

void store_int(void* data, DType dtype, int64_t i, int64_t value) {
  switch (dtype) {
    case DType::boolean:
      at<uint8_t>(data, i) = value != 0;
      return;
    case DType::u8:
    case DType::i4x2:
      at<uint8_t>(data, i) = static_cast<uint8_t>(value);
      return;
    case DType::i8:
      at<int8_t>(data, i) = static_cast<int8_t>(value);
      return;
    case DType::u16:
      at<uint16_t>(data, i) = static_cast<uint16_t>(value);
      return;
    case DType::i16:
      at<int16_t>(data, i) = static_cast<int16_t>(value);
      return;
    case DType::u32:
      at<uint32_t>(data, i) = static_cast<uint32_t>(value);
      return;
    case DType::i32:
      at<int32_t>(data, i) = static_cast<int32_t>(value);
      return;
    case DType::i64:
      at<int64_t>(data, i) = value;
      return;
    default:
      store(data, dtype, i, static_cast<double>(value));
  }
}
}  // namespace weft

fmt::format_context::iterator fmt::formatter<weft::DType>::format(
    weft::DType dtype, fmt::format_context& context) const {
  return fmt::formatter<fmt::string_view>::format(weft::name(dtype), context);
}
