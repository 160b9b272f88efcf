// Converts between elements in memory and the lanes that compute them, inlined into the kernels of
// this folder.
#pragma once

#include <bit>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include "weft/base/error.h"
#include "weft/base/numbers/dtype.h"
#include "weft/base/numbers/narrow.h"

namespace weft::cpu {

// These are elements of the 8-bit floats, which kernels only read.
struct F8E4M3 {
  uint8_t bits;
};
struct F8E5M2 {
  uint8_t bits;
};

template <class T>
inline constexpr bool is_f8 = std::is_same_v<T, F8E4M3> || std::is_same_v<T, F8E5M2>;
template <class T>
inline constexpr bool is_narrow =
    is_f8<T> || std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>;

[[gnu::always_inline]] inline float widen(BFloat16 value) {
  return std::bit_cast<float>(uint32_t{value.bits} << 16);
}
[[gnu::always_inline]] inline float widen(Half value) {
  return static_cast<float>(std::bit_cast<_Float16>(value));
}

// The bits of an E5M2 number are the upper half of a float16.
[[gnu::always_inline]] inline float widen(F8E5M2 value) {
  return widen(Half{static_cast<uint16_t>(value.bits << 8)});
}
// The bits of an E4M3 number, shifted into the fields of a float16, give it divided by 2^8, as its
// exponent bias is smaller by 8.
[[gnu::always_inline]] inline float widen(F8E4M3 value) {
  const int magnitude = value.bits & 0x7f, sign = value.bits & 0x80;
  const float scaled = widen(Half{static_cast<uint16_t>(sign << 8 | magnitude << 7)}) * 256;
  return magnitude == 0x7f ? std::numeric_limits<float>::quiet_NaN() : scaled;
}

// Converts an element to the type of a vector lane, which is float for narrower floats.
template <class Lane, class Element>
[[gnu::always_inline]] inline Lane to_lane(Element value) {
  if constexpr (is_narrow<Element>)
    return widen(value);
  else
    return static_cast<Lane>(value);
}
template <class Element, class Lane>
[[gnu::always_inline]] inline Element from_lane(Lane value) {
  if constexpr (is_narrow<Element>)
    return narrow<Element>(value);
  else
    return static_cast<Element>(value);
}

// Calls f(Element{}, Lane{}) for a floating point type.
template <class F>
void with_float(DType dtype, F&& f) {
  switch (dtype) {
    case DType::f64:
      return f(double{}, double{});
    case DType::f32:
      return f(float{}, float{});
    case DType::f16:
      return f(Half{}, float{});
    case DType::bf16:
      return f(BFloat16{}, float{});
    default:
      WEFT_ASSERT(false, "no floating point type: {}", name(dtype));
  }
}
// Calls f(Element{}, Lane{}) for any number; integers wrap in unsigned lanes.
template <class F>
void with_number(DType dtype, F&& f) {
  switch (dtype) {
    case DType::i64:
      return f(int64_t{}, uint64_t{});
    case DType::i32:
      return f(int32_t{}, uint32_t{});
    case DType::u32:
      return f(uint32_t{}, uint32_t{});
    case DType::u16:
      return f(uint16_t{}, uint32_t{});
    case DType::i16:
      return f(int16_t{}, uint32_t{});
    case DType::i8:
      return f(int8_t{}, uint32_t{});
    case DType::u8:
      return f(uint8_t{}, uint32_t{});
    default:
      return with_float(dtype, std::forward<F>(f));
  }
}

}  // namespace weft::cpu
