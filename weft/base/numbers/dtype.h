// Defines element types, and the conversions between their bits and float.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include <fmt/core.h>

namespace weft {

// `boolean` is one byte, 0 or 1. f8_e4m3 and f8_e5m2 follow OCP's "8-bit Floating Point
// Specification" (2023); they are only stored, and cast to compute.
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
  f64,
  u16,
  u32
};
inline constexpr int dtype_count = 15;

enum class NumberKind : uint8_t { boolean, without_sign, with_sign, floating };

// A FloatFormat describes a binary floating-point format: a sign bit, the widths in bits of
// exponent (with IEEE 754's bias) and fraction.
struct FloatFormat {
  int exponent = 0, fraction = 0;
  // Without infinities the largest exponent is an ordinary one, except for NaN (all bits set).
  bool has_infinities = true;

  int bias() const { return (1 << (exponent - 1)) - 1; }
  int least_exponent() const { return 1 - bias(); }  // smallest exponent of normal numbers
};

// DTypeInfo holds all properties of a type. A new type is a row of the table in dtype.cpp.
struct DTypeInfo {
  std::string_view name;         // "f32", as printed and as written in recipes
  std::string_view safetensors;  // "F32"; empty: the format has no such type
  int bits;                      // bits of one element
  NumberKind kind;
  DType computed;     // the type of arithmetic; stores round back to this type
  DType accumulator;  // the least type of sums and products
  FloatFormat format = {};
  bool stored_only = false;  // only operations that move or cast take it
  int numbers = 1;           // numbers packed in one element; shapes count elements
};
const DTypeInfo& info(DType dtype);

inline std::string_view name(DType dtype) { return info(dtype).name; }
inline size_t size_of(DType dtype) { return static_cast<size_t>(info(dtype).bits) / 8; }
inline bool is_float(DType dtype) { return info(dtype).kind == NumberKind::floating; }
inline bool is_integer(DType dtype) {
  return info(dtype).kind == NumberKind::without_sign || info(dtype).kind == NumberKind::with_sign;
}
// Returns whether the type has negative numbers.
inline bool has_sign(DType dtype) { return info(dtype).kind >= NumberKind::with_sign; }
inline DType accumulator(DType dtype) { return info(dtype).accumulator; }
// Returns whether kernels compute in a wider float: for float16 and bfloat16.
inline bool computes_wider(DType dtype) {
  return info(dtype).computed != dtype && !info(dtype).stored_only;
}
// Returns the count of bits n such that the type represents every integer of up to n bits.
int whole_bits(DType dtype);
// Throws Error(usage) naming the known types.
DType parse_dtype(std::string_view text);

// Half and BFloat16 are IEEE 754 binary16 and bfloat16; conversions to them round to nearest even.
struct Half {
  uint16_t bits;
};
struct BFloat16 {
  uint16_t bits;
};
float to_float(Half value);
float to_float(BFloat16 value);
Half to_half(double value);
// Convert between a number and its bits in any format. A value too large for a format without
// infinities becomes its largest number (saturation, as in PyTorch and NVIDIA's instructions).
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
inline constexpr DType dtype_of<uint32_t> = DType::u32;
template <>
inline constexpr DType dtype_of<uint16_t> = DType::u16;
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

// Read or write one element as double (integers above 2^53 lose bits: use load_int / store_int).
double load(const void* data, DType dtype, int64_t index);
void store(void* data, DType dtype, int64_t index, double value);
int64_t load_int(const void* data, DType dtype, int64_t index);
void store_int(void* data, DType dtype, int64_t index, int64_t value);

}  // namespace weft

// A dtype formats as its name.
template <>
struct fmt::formatter<weft::DType> : fmt::formatter<fmt::string_view> {
  fmt::format_context::iterator format(weft::DType dtype, fmt::format_context& context) const;
};
