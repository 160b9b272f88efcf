#include "weft/comm/combine.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

#include <emmintrin.h>

#include "weft/base/error.h"

namespace weft::comm {
namespace {
constexpr int64_t block = 1024;  // elements that are combined in the cache at a time

// Sums of integers wrap.
template <class T>
using Wrapping = typename std::conditional_t<std::is_integral_v<T> && !std::is_same_v<T, bool>,
                                             std::make_unsigned<T>, std::type_identity<T>>::type;

template <class T>
T larger(T a, T b) {
  if constexpr (std::is_floating_point_v<T>)
    if (std::isnan(a) || std::isnan(b)) return a + b;
  return std::max(a, b);
}
template <class T>
T smaller(T a, T b) {
  if constexpr (std::is_floating_point_v<T>)
    if (std::isnan(a) || std::isnan(b)) return a + b;
  return std::min(a, b);
}

template <class T>
void add(T* sum, const T* more, int64_t count) {
  using W = Wrapping<T>;
#pragma omp simd
  for (int64_t i = 0; i < count; ++i)
    sum[i] = static_cast<T>(static_cast<W>(sum[i]) + static_cast<W>(more[i]));
}
template <class T, class F>
void each(T* sum, const T* more, int64_t count, F function) {
  for (int64_t i = 0; i < count; ++i) sum[i] = function(sum[i], more[i]);
}

// Combines `more` into `sum`, in the type of arithmetic.
template <class T>
void combine_block(T* sum, const T* more, int64_t count, std::string_view operation) {
  using W = Wrapping<T>;
  if (operation == "add") return add(sum, more, count);
  if (operation == "mul")
    return each(sum, more, count,
                [](T a, T b) { return static_cast<T>(static_cast<W>(a) * static_cast<W>(b)); });
  if (operation == "maximum") return each(sum, more, count, larger<T>);
  if (operation == "minimum") return each(sum, more, count, smaller<T>);
  WEFT_ASSERT(false, "ranks cannot combine by {}", operation);
}

float as_float(Half x) { return to_float(x); }
float as_float(BFloat16 x) { return to_float(x); }
void round_into(Half& to, float x) { to = to_half(x); }
void round_into(BFloat16& to, float x) { to = to_bfloat16(x); }

// Where the sum of a block begins, and where it goes.
struct Ends {
  const std::byte* carried = nullptr;  // of element `from`; null: the first operand begins
  std::byte* result = nullptr;         // of element `from`
  bool is_carried_on = false;
  Stores stores = Stores::cached;
};

template <class T>
void combine_as(const Ends& ends, std::span<const std::byte* const> operands, int64_t from,
                int64_t to, std::string_view operation) {
  constexpr bool is_narrow = std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>;
  using Sum = std::conditional_t<is_narrow, float, T>;
  Sum sum[block], more[block];
  const auto read = [&](const std::byte* operand, int64_t at, int64_t count, Sum* into) {
    const T* const elements = reinterpret_cast<const T*>(operand) + at;
    if constexpr (is_narrow)
      for (int64_t i = 0; i < count; ++i) into[i] = as_float(elements[i]);
    else
      std::copy_n(elements, count, into);
  };
  const auto write = [&](auto* into, int64_t count) {
    copy(reinterpret_cast<std::byte*>(into), reinterpret_cast<const std::byte*>(sum),
         static_cast<size_t>(count) * sizeof(Sum), ends.stores);
  };
  for (int64_t at = from; at < to; at += block) {
    const int64_t count = std::min(block, to - at);
    if (ends.carried != nullptr)
      std::copy_n(reinterpret_cast<const Sum*>(ends.carried) + (at - from), count, sum);
    else
      read(operands[0], at, count, sum);
    for (const std::byte* operand : operands.subspan(ends.carried != nullptr ? 0 : 1)) {
      if constexpr (is_narrow) {
        read(operand, at, count, more);
        combine_block(sum, more, count, operation);
      } else {
        combine_block(sum, reinterpret_cast<const T*>(operand) + at, count, operation);
      }
    }
    if (ends.is_carried_on) {
      write(reinterpret_cast<Sum*>(ends.result) + (at - from), count);
      continue;
    }
    T* const into = reinterpret_cast<T*>(ends.result) + (at - from);
    if constexpr (is_narrow)
      for (int64_t i = 0; i < count; ++i) round_into(into[i], sum[i]);
    else
      write(into, count);
  }
}

void combine_between(const Ends& ends, std::span<const std::byte* const> operands, int64_t from,
                     int64_t to, DType dtype, std::string_view operation) {
  const auto as = [&]<class T>(T) { combine_as<T>(ends, operands, from, to, operation); };
  switch (dtype) {
    case DType::f64:
      return as(double());
    case DType::f32:
      return as(float());
    case DType::f16:
      return as(Half());
    case DType::bf16:
      return as(BFloat16());
    case DType::i64:
      return as(int64_t());
    case DType::i32:
      return as(int32_t());
    case DType::i16:
      return as(int16_t());
    case DType::i8:
      return as(int8_t());
    case DType::u32:
      return as(uint32_t());
    case DType::u16:
      return as(uint16_t());
    case DType::u8:
      return as(uint8_t());
    case DType::boolean:  // 0 or 1
      return combine_as<uint8_t>(ends, operands, from, to,
                                 operation == "logical_or" ? "maximum" : "minimum");
    default:
      WEFT_ASSERT(false, "ranks cannot combine {}", name(dtype));
  }
}
}  // namespace

void end_streams() { _mm_sfence(); }

void combine(std::span<const std::byte* const> operands, std::byte* result, int64_t from,
             int64_t to, DType dtype, std::string_view operation, Stores stores) {
  std::byte* const at = result + from * static_cast<int64_t>(size_of(dtype));
  combine_between({.result = at, .stores = stores}, operands, from, to, dtype, operation);
}

DType carried_type(DType dtype) {
  return dtype == DType::f16 || dtype == DType::bf16 ? DType::f32 : dtype;
}

void combine_carried(const Carry& carry, std::span<const std::byte* const> operands,
                     std::byte* result, int64_t from, int64_t to, DType dtype,
                     std::string_view operation) {
  combine_between({.carried = carry.carried, .result = result, .is_carried_on = !carry.is_last},
                  operands, from, to, dtype, operation);
}

void copy(std::byte* to, const std::byte* from, size_t bytes, Stores stores) {
  if (stores == Stores::streamed) {
    constexpr size_t width = sizeof(__m128i);
    const size_t head = std::min(bytes, (width - reinterpret_cast<uintptr_t>(to) % width) % width);
    std::memcpy(to, from, head);
    size_t at = head;
    for (; at + width <= bytes; at += width)
      _mm_stream_si128(reinterpret_cast<__m128i*>(to + at),
                       _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + at)));
    std::memcpy(to + at, from + at, bytes - at);
  } else {
    std::memcpy(to, from, bytes);
  }
}

}  // namespace weft::comm
