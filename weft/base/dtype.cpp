#include "weft/base/dtype.h"

#include <bit>
#include <cmath>

#include "weft/base/error.h"

namespace weft {
namespace {
constexpr DTypeInfo infos[dtype_count] = {
    {"bool", "BOOL", 1, false}, {"u8", "U8", 1, false},    {"i8", "I8", 1, false},
    {"i16", "I16", 2, false},   {"i32", "I32", 4, false},  {"i64", "I64", 8, false},
    {"f16", "F16", 2, true},    {"bf16", "BF16", 2, true}, {"f32", "F32", 4, true},
    {"f64", "F64", 8, true},
};

// Rounds a double to a binary format of `mantissa` bits and the given exponent range in one step,
// so that no second rounding through float can occur.
uint16_t round_to_16(double value, int mantissa, int min_exponent, int max_exponent) {
  uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  uint16_t infinity = static_cast<uint16_t>(((1 << (15 - mantissa)) - 1) << mantissa);
  if (std::isnan(value)) return sign | infinity | static_cast<uint16_t>(1 << (mantissa - 1));
  double magnitude = std::fabs(value);
  if (magnitude == 0) return sign;
  if (std::isinf(value)) return sign | infinity;
  int exponent = std::max(std::ilogb(magnitude), min_exponent);
  double units = std::nearbyint(std::ldexp(magnitude, mantissa - exponent));
  if (units >= std::ldexp(1.0, mantissa + 1)) {
    units /= 2;
    ++exponent;
  }
  if (exponent > max_exponent) return sign | infinity;
  auto fraction = static_cast<uint32_t>(units);
  // A subnormal has no implicit bit: adding the exponent field less one covers both cases.
  uint32_t bits = fraction + (static_cast<uint32_t>(exponent - min_exponent) << mantissa);
  return sign | static_cast<uint16_t>(bits);
}
}  // namespace

const DTypeInfo& info(DType dtype) { return infos[static_cast<int>(dtype)]; }

DType accumulator(DType dtype) {
  if (dtype == DType::f64) return DType::f64;
  return is_float(dtype) ? DType::f32 : DType::i64;
}

DType parse_dtype(std::string_view text) {
  for (int i = 0; i < dtype_count; ++i)
    if (infos[i].name == text) return static_cast<DType>(i);
  throw Error(ErrorKind::usage,
              "unknown dtype '{}'. Known: bool u8 i8 i16 i32 i64 f16 bf16 f32 f64.", text);
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
Half to_half(double value) { return {round_to_16(value, 10, -14, 15)}; }
BFloat16 to_bfloat16(double value) { return {round_to_16(value, 7, -126, 127)}; }

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
      return at<uint8_t>(data, i);
    case DType::i8:
      return at<int8_t>(data, i);
    case DType::i16:
      return at<int16_t>(data, i);
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
      at<uint8_t>(data, i) = static_cast<uint8_t>(value);
      return;
    case DType::i8:
      at<int8_t>(data, i) = static_cast<int8_t>(value);
      return;
    case DType::i16:
      at<int16_t>(data, i) = static_cast<int16_t>(value);
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
