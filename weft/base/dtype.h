// Element types, and the conversions between their bits and float.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace weft {

// Ordered so that promotion of scalars can compare; `boolean` is one byte, 0 or 1.
enum class DType : uint8_t { boolean, u8, i8, i16, i32, i64, f16, bf16, f32, f64 };
inline constexpr int dtype_count = 10;

struct DTypeInfo {
  std::string_view name;         // "f32", as printed and as written in recipes
  std::string_view safetensors;  // "F32"
  size_t bytes;
  bool is_float;
};
const DTypeInfo& info(DType dtype);

inline std::string_view name(DType dtype) { return info(dtype).name; }
inline size_t size_of(DType dtype) { return info(dtype).bytes; }
inline bool is_float(DType dtype) { return info(dtype).is_float; }
inline bool is_integer(DType dtype) { return !is_float(dtype) && dtype != DType::boolean; }
// Sums and products accumulate in at least float32, integers in int64.
DType accumulator(DType dtype);
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
