// Compares lanes of vectors and chooses lanes by the resulting mask. A mask is a vector of integers
// or, where vectors have 64 bytes, an integer with a bit per lane: GCC 12 would compare 64-byte
// vectors lane by lane, as it lowers an always_inline function before it inlines the function into
// a caller with AVX-512.
//
// Include it below a file's own #pragma about optimization, which must cover these functions, too.
#pragma once

#include <cstdint>
#include <type_traits>

#include "weft/backends/cpu/rows/transpose.h"
#include "weft/base/host/isa_dispatch.h"  // names targets, whose builtins GCC then knows

namespace weft::cpu {

enum class Predicate : uint8_t { equal = 0, less = 1, unordered = 3 };  // as vcmpps encodes them

#if defined(__clang__)
template <class Vector>
inline constexpr bool compares_to_bits = false;
#else
template <class Vector>
inline constexpr bool compares_to_bits = sizeof(Vector) == 64;
#endif

template <Predicate predicate, class Vector>
[[gnu::always_inline]] inline auto bits_where([[maybe_unused]] Vector a,
                                              [[maybe_unused]] Vector b) {
#if !defined(__clang__)
  using Lane = std::remove_cvref_t<decltype(a[0])>;
  constexpr int number = static_cast<int>(predicate), rounding = 4;
  constexpr auto all = static_cast<uint16_t>(-1);
  if constexpr (std::is_same_v<Lane, float>)
    return __builtin_ia32_cmpps512_mask(a, b, number, all, rounding);
  else if constexpr (std::is_same_v<Lane, double>)
    return __builtin_ia32_cmppd512_mask(a, b, number, static_cast<uint8_t>(all), rounding);
  else if constexpr (sizeof(Lane) == 8)
    return __builtin_ia32_cmpq512_mask(reinterpret_cast<VectorOf<long long, 64>>(a),
                                       reinterpret_cast<VectorOf<long long, 64>>(b), number,
                                       static_cast<uint8_t>(all));
  else
    return __builtin_ia32_cmpd512_mask(a, b, number, all);
#endif
}

template <class Vector>
[[gnu::always_inline]] inline auto less(Vector a, Vector b) {
  if constexpr (compares_to_bits<Vector>)
    return bits_where<Predicate::less>(a, b);
  else
    return a < b;
}
template <class Vector>
[[gnu::always_inline]] inline auto equal(Vector a, Vector b) {
  if constexpr (compares_to_bits<Vector>)
    return bits_where<Predicate::equal>(a, b);
  else
    return a == b;
}
template <class Vector>
[[gnu::always_inline]] inline auto is_nan(Vector x) {
  if constexpr (compares_to_bits<Vector>)
    return bits_where<Predicate::unordered>(x, x);
  else
    return x != x;  // NOLINT(misc-redundant-expression)
}

// Returns the lanes of `yes` where `mask` holds, else those of `no`.
template <class Mask, class Vector>
[[gnu::always_inline]] inline Vector choose(Mask mask, Vector yes, Vector no) {
#if !defined(__clang__)
  using Lane = std::remove_cvref_t<decltype(yes[0])>;
  if constexpr (!compares_to_bits<Vector>)
    return mask ? yes : no;
  else if constexpr (std::is_same_v<Lane, float>)
    return __builtin_ia32_blendmps_512_mask(no, yes, mask);
  else if constexpr (std::is_same_v<Lane, double>)
    return __builtin_ia32_blendmpd_512_mask(no, yes, mask);
  else if constexpr (sizeof(Lane) == 8)
    return reinterpret_cast<Vector>(
        __builtin_ia32_blendmq_512_mask(reinterpret_cast<VectorOf<long long, 64>>(no),
                                        reinterpret_cast<VectorOf<long long, 64>>(yes), mask));
  else
    return reinterpret_cast<Vector>(
        __builtin_ia32_blendmd_512_mask(reinterpret_cast<VectorOf<int32_t, 64>>(no),
                                        reinterpret_cast<VectorOf<int32_t, 64>>(yes), mask));
#else
  return mask ? yes : no;
#endif
}

}  // namespace weft::cpu
