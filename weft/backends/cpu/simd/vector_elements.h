// Loads vectors of elements as lanes that compute, and stores them. Include it below a file's own
// #pragma about optimization, which must cover these functions, too.
#pragma once

#include <type_traits>

#include "weft/backends/cpu/rows/transpose.h"
#include "weft/backends/cpu/simd/elements.h"
#include "weft/backends/cpu/simd/vector_compare.h"
#include "weft/base/host/isa_dispatch.h"  // names targets, whose builtins GCC then knows

namespace weft::cpu {

// These are rounding operands of conversion instructions: the thread's rounding mode, and nearest
// even.
inline constexpr int current_rounding = 4, nearest_even = 0;

// Loads a vector of `bytes` of lanes. GCC 12 needs its builtins to widen in one instruction.
template <class Element, int bytes, class Lane = float>
[[gnu::always_inline]] inline VectorOf<Lane, bytes> load(const Element* from) {
  using Vector = VectorOf<Lane, bytes>;
  constexpr int lanes = bytes / static_cast<int>(sizeof(Lane));
  [[maybe_unused]] constexpr auto all = static_cast<uint16_t>(-1);  // lanes
  if constexpr (std::is_same_v<Element, Lane>) {
    return *reinterpret_cast<const Vector*>(from);
  } else if constexpr (bytes < 16) {
    Vector wide{};
    for (int i = 0; i < lanes; ++i) wide[i] = widen(from[i]);
    return wide;
  } else if constexpr (std::is_same_v<Element, BFloat16>) {
    using Bits = VectorOf<int32_t, bytes>;
    const auto stored = *reinterpret_cast<const VectorOf<int16_t, bytes / 2>*>(from);
#if !defined(__clang__)
    if constexpr (bytes == 64)
      return reinterpret_cast<Vector>(__builtin_ia32_pmovzxwd512_mask(stored, Bits{}, all) << 16);
    if constexpr (bytes == 32)
      return reinterpret_cast<Vector>(__builtin_ia32_pmovzxwd256(stored) << 16);
#endif
    return reinterpret_cast<Vector>(__builtin_convertvector(stored, Bits) << 16);
  } else {
#if defined(__clang__)
    using Halves = VectorOf<_Float16, bytes / 2>;
    return __builtin_convertvector(*reinterpret_cast<const Halves*>(from), Vector);
#else
    [[maybe_unused]] const auto* stored =
        reinterpret_cast<const VectorOf<int16_t, bytes / 2>*>(from);
    if constexpr (bytes == 64)
      return __builtin_ia32_vcvtph2ps512_mask(*stored, Vector{}, all, current_rounding);
    else if constexpr (bytes == 32)
      return __builtin_ia32_vcvtph2ps256(*stored);
    Vector wide{};
    for (int i = 0; i < lanes; ++i) wide[i] = widen(from[i]);
    return wide;
#endif
  }
}

// Rounds a vector of `bytes` of lanes to elements, as from_lane() does, and stores them.
template <class Element, int bytes, class Lane = float>
[[gnu::always_inline]] inline void store(Element* to, const VectorOf<Lane, bytes>& lanes) {
  constexpr int count = bytes / static_cast<int>(sizeof(Lane));
  if constexpr (std::is_same_v<Element, Lane>) {
    *reinterpret_cast<VectorOf<Lane, bytes>*>(to) = lanes;
  } else if constexpr (bytes >= 16 && std::is_same_v<Element, BFloat16>) {
    using Bits = VectorOf<uint32_t, bytes>;
    using Stored = VectorOf<uint16_t, bytes / 2>;
    const auto bits = reinterpret_cast<Bits>(lanes);
    const Bits rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16, quiet = bits >> 16 | 0x40;
    *reinterpret_cast<Stored*>(to) =
        __builtin_convertvector(choose(is_nan(lanes), quiet, rounded), Stored);
  } else {
#if !defined(__clang__)
    if constexpr (bytes == 64 && std::is_same_v<Element, Half>) {
      using Stored = VectorOf<int16_t, bytes / 2>;
      constexpr auto all = static_cast<uint16_t>(-1);  // lanes
      *reinterpret_cast<Stored*>(to) =
          __builtin_ia32_vcvtps2ph512_mask(lanes, nearest_even, Stored{}, all);
      return;
    }
    if constexpr (bytes == 32 && std::is_same_v<Element, Half>) {
      using Stored = VectorOf<int16_t, bytes / 2>;
      *reinterpret_cast<Stored*>(to) = __builtin_ia32_vcvtps2ph256(lanes, nearest_even);
      return;
    }
#endif
    for (int i = 0; i < count; ++i) to[i] = from_lane<Element>(static_cast<Lane>(lanes[i]));
  }
}

}  // namespace weft::cpu
