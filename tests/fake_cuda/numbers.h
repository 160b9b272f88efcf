// Loads and stores numbers of the types that NVIDIA's libraries compute with.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace fake {

enum class Number { f64, f32, f16, bf16 };

inline double load(Number type, const void* from, int64_t at) {
  switch (type) {
    case Number::f64:
      return static_cast<const double*>(from)[at];
    case Number::f32:
      return static_cast<const float*>(from)[at];
    case Number::f16:
      return static_cast<double>(static_cast<const _Float16*>(from)[at]);
    case Number::bf16:
      return std::bit_cast<float>(uint32_t{static_cast<const uint16_t*>(from)[at]} << 16);
  }
  return std::nan("");
}

// Rounds to float32 first, then to the narrower type.
inline void store(Number type, void* to, int64_t at, double value) {
  const auto single = static_cast<float>(value);
  const auto bits = std::bit_cast<uint32_t>(single);
  switch (type) {
    case Number::f64:
      static_cast<double*>(to)[at] = value;
      break;
    case Number::f32:
      static_cast<float*>(to)[at] = single;
      break;
    case Number::f16:
      static_cast<_Float16*>(to)[at] = static_cast<_Float16>(single);
      break;
    case Number::bf16:
      static_cast<uint16_t*>(to)[at] = static_cast<uint16_t>(
          std::isnan(single) ? 0x7fff : (bits + 0x7fff + (bits >> 16 & 1)) >> 16);
      break;
  }
}

}  // namespace fake
