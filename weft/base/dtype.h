// Element types, and the conversions between their bits and float.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace weft {

// Ordered so that promotion of scalars can compare; `boolean` is one byte, 0 or 1. f8_e4m3 and
// f8_e5m2 are those of OCP's "8-bit Floating Point Specification" (2023): values are only stored in
// them, and cast to be computed with. An element of i4x2 is a byte that holds two integers of four
// bits, the first in the low half: unpack() and dequantize() read them.
enum class DType : uint8_t {
  boolean,
  u8,
  i8,
  i16,
  i32,
  i64,
  i4x2,
  f8_e4m3,
  f8_e5m2,
  f16,
  bf16,
  f32,
  f64
};
inline constexpr int dtype_count = 13;

enum class NumberKind : uint8_t { boolean, without_sign, with_sign, floating };

// A binary floating point number: a sign, and so many bits of exponent, with the bias of IEEE 754,
// and of fraction.
struct FloatFormat {
  int exponent = 0, fraction = 0;
  // Else the greatest exponent is one of numbers like any other, but for the NaN of which all bits
  // are set.
  bool has_infinities = true;

  int bias() const { return (1 << (exponent - 1)) - 1; }
  int least_exponent() const { return 1 - bias(); }  // of normal numbers
};

// All that tells types apart. A new one is a row of the table (dtype.cpp).
struct DTypeInfo {
  std::string_view name;         // "f32", as printed and as written in recipes
  std::string_view safetensors;  // "F32"; empty: the format has no such type
  int bits;                      // of one element
  NumberKind kind;
  DType computed;     // in which kernels compute with it, and round what they store
  DType accumulator;  // of sums and products, at least
  FloatFormat format = {};
  bool stored_only = false;  // no operation takes it, but those that move or cast
  int numbers = 1;           // in one element: strides and shapes count elements
};
const DTypeInfo& info(DType dtype);

inline std::string_view name(DType dtype) { return info(dtype).name; }
inline size_t size_of(DType dtype) { return static_cast<size_t>(info(dtype).bits) / 8; }
inline bool is_float(DType dtype) { return info(dtype).kind == NumberKind::floating; }
inline bool is_integer(DType dtype) {
  return info(dtype).kind == NumberKind::without_sign || info(dtype).kind == NumberKind::with_sign;
}
inline DType accumulator(DType dtype) { return info(dtype).accumulator; }
// A float that kernels compute in a wider one: float16 and bfloat16.
inline bool computes_wider(DType dtype) {
  return info(dtype).computed != dtype && !info(dtype).stored_only;
}
// Bits of the greatest whole number below which a type holds every one.
int whole_bits(DType dtype);
// Throws Error(usage) naming the known types.
DType parse_dtype(std::string_view text);

// IEEE 754 binary16 and bfloat16, round to nearest even.
struct Half {
  uint16_t bits;
};
struct BFloat16 {
  uint16_t bits;
};
float to_float(Half value);
float to_float(BFloat16 value);
Half to_half(double value);
// The bits of a number in any format, and back. What is too large for one without infinities is its
// greatest number (saturation, as in PyTorch and NVIDIA's instructions).
uint64_t to_bits(double value, const FloatFormat& format);
double from_bits(uint64_t bits, const FloatFormat& format);
BFloat16 to_bfloat16(double value);

template <class T>
inline constexpr DType dtype_of = DType::f32;
template <>
inline constexpr DType dtype_of<double> = DType::f64;
template <>
inline constexpr DType dtype_of<int64_t> = DType::i64;
template <>
inline constexpr DType dtype_of<int32_t> = DType::i32;
template <>
inline constexpr DType dtype_of<int16_t> = DType::i16;
template <>
inline constexpr DType dtype_of<int8_t> = DType::i8;
template <>
inline constexpr DType dtype_of<uint8_t> = DType::u8;
template <>
inline constexpr DType dtype_of<bool> = DType::boolean;
template <>
inline constexpr DType dtype_of<Half> = DType::f16;
template <>
inline constexpr DType dtype_of<BFloat16> = DType::bf16;

// One element read or written as double (integers above 2^53 lose bits: use load_int / store_int).
double load(const void* data, DType dtype, int64_t index);
void store(void* data, DType dtype, int64_t index, double value);
int64_t load_int(const void* data, DType dtype, int64_t index);
void store_int(void* data, DType dtype, int64_t index, int64_t value);

}  // namespace weft
