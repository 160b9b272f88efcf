// Computes dot products of integers in vectors: each lane adds the products of its four bytes.
// Files include it after their pragmas, which its functions need.
#pragma once

#include <cstdint>

#include "weft/backends/cpu/rows/transpose.h"

namespace weft::cpu::int8 {

// Dot names the method. vnni: vpdpbusd, whose first factor is unsigned, so that quants are stored
// plus 128 and sums begin at -128 times the sum of x. signs: on AVX2, the magnitudes of w times x
// with the signs of w, in 16-bit sums of two products, at most 2 * 128 * 127 < 2^15.
enum class Dot { vnni, signs };

template <class Body, class... Args>
[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,fma,f16c")]] void run_vnni(
    Args... args) {
  Body::run(args...);
}

// Returns a vector whose lanes are the four bytes at `from`.
template <class Ints>
[[gnu::always_inline]] inline Ints filled(const void* from) {
  int32_t four;
  __builtin_memcpy(&four, from, sizeof(four));
#if !defined(__clang__)
  // GCC 12 needs its builtins to fill all lanes in one instruction.
  if constexpr (sizeof(Ints) == 64)
    return __builtin_ia32_pbroadcastd512_gpr_mask(four, Ints{}, static_cast<uint16_t>(-1));
  if constexpr (sizeof(Ints) == 32)
    return __builtin_ia32_pbroadcastd256(VectorOf<int32_t, 16>{four, 0, 0, 0});
#endif
  return Ints{} + four;
}

// Multiplies the two 16-bit numbers in each lane of b by the two of `pair`, the same in all lanes,
// and adds both products to the lane's sum.
#if defined(__clang__)
[[gnu::target("avx512f,avx512bw")]] inline void add_pairs(VectorOf<uint32_t, 64>& sums,
                                                          uint32_t pair,
                                                          const VectorOf<uint32_t, 64>& b) {
  const VectorOf<uint32_t, 64> all = VectorOf<uint32_t, 64>{} + pair;
  using Shorts = VectorOf<int16_t, 64>;
  sums += reinterpret_cast<VectorOf<uint32_t, 64>>(__builtin_ia32_pmaddwd512(
      reinterpret_cast<const Shorts&>(all), reinterpret_cast<const Shorts&>(b)));
}
[[gnu::target("avx2")]] inline void add_pairs(VectorOf<uint32_t, 32>& sums, uint32_t pair,
                                              const VectorOf<uint32_t, 32>& b) {
  const VectorOf<uint32_t, 32> all = VectorOf<uint32_t, 32>{} + pair;
  using Shorts = VectorOf<int16_t, 32>;
  sums += reinterpret_cast<VectorOf<uint32_t, 32>>(__builtin_ia32_pmaddwd256(
      reinterpret_cast<const Shorts&>(all), reinterpret_cast<const Shorts&>(b)));
}
#else
[[gnu::always_inline]] inline void add_pairs(VectorOf<uint32_t, 64>& sums, uint32_t pair,
                                             const VectorOf<uint32_t, 64>& b) {
  const VectorOf<uint32_t, 64> all = VectorOf<uint32_t, 64>{} + pair;
  using Shorts = VectorOf<int16_t, 64>;
  sums += reinterpret_cast<VectorOf<uint32_t, 64>>(
      __builtin_ia32_pmaddwd512_mask(reinterpret_cast<Shorts>(all), reinterpret_cast<Shorts>(b),
                                     VectorOf<int32_t, 64>{}, static_cast<uint16_t>(-1)));
}
[[gnu::always_inline]] inline void add_pairs(VectorOf<uint32_t, 32>& sums, uint32_t pair,
                                             const VectorOf<uint32_t, 32>& b) {
  const VectorOf<uint32_t, 32> all = VectorOf<uint32_t, 32>{} + pair;
  using Shorts = VectorOf<int16_t, 32>;
  sums += reinterpret_cast<VectorOf<uint32_t, 32>>(
      __builtin_ia32_pmaddwd256(reinterpret_cast<Shorts>(all), reinterpret_cast<Shorts>(b)));
}
#endif
[[gnu::always_inline]] inline void add_pairs(VectorOf<uint32_t, 16>& sums, uint32_t pair,
                                             const VectorOf<uint32_t, 16>& b) {
  const VectorOf<uint32_t, 16> all = VectorOf<uint32_t, 16>{} + pair;
  using Shorts = VectorOf<int16_t, 16>;
  sums += reinterpret_cast<VectorOf<uint32_t, 16>>(__builtin_ia32_pmaddwd128(
      reinterpret_cast<const Shorts&>(all), reinterpret_cast<const Shorts&>(b)));
}

#if defined(__clang__)
// Clang inlines these functions only after their callers were inlined into run_vnni() or
// run_avx2(), which have the instruction set.
[[gnu::target("avx512f,avx512vnni")]] inline void add_dots(VectorOf<int32_t, 64>& sums,
                                                           const VectorOf<int32_t, 64>& w,
                                                           const VectorOf<int32_t, 64>& x) {
  sums = __builtin_ia32_vpdpbusd512(sums, w, x);
}
[[gnu::target("avx2")]] inline void set_dots(VectorOf<int32_t, 32>& sums,
                                             const VectorOf<uint8_t, 32>& w,
                                             const VectorOf<int8_t, 32>& x) {
  using Bytes = VectorOf<char, 32>;
  const auto pairs = __builtin_ia32_pmaddubsw256(reinterpret_cast<const Bytes&>(w),
                                                 reinterpret_cast<const Bytes&>(x));
  sums = __builtin_ia32_pmaddwd256(pairs, VectorOf<int16_t, 32>{} + int16_t{1});
}
[[gnu::target("avx2")]] inline void add_dots(VectorOf<int32_t, 32>& sums,
                                             const VectorOf<int32_t, 32>& w,
                                             const VectorOf<int32_t, 32>& x) {
  using Bytes = VectorOf<char, 32>;
  using Signed = VectorOf<signed char, 32>;
  const auto magnitude = __builtin_elementwise_abs(reinterpret_cast<const Signed&>(w));
  const auto signs = __builtin_ia32_psignb256(reinterpret_cast<const Bytes&>(x),
                                              reinterpret_cast<const Bytes&>(w));
  const auto pairs = __builtin_ia32_pmaddubsw256(reinterpret_cast<const Bytes&>(magnitude), signs);
  sums += __builtin_ia32_pmaddwd256(pairs, VectorOf<int16_t, 32>{} + int16_t{1});
}
#else
[[gnu::always_inline]] inline void add_dots(VectorOf<int32_t, 64>& sums,
                                            const VectorOf<int32_t, 64>& w,
                                            const VectorOf<int32_t, 64>& x) {
  sums = __builtin_ia32_vpdpbusd_v16si(sums, w, x);
}
// Sets the products of w, unsigned and below 128, and x.
[[gnu::always_inline]] inline void set_dots(VectorOf<int32_t, 32>& sums,
                                            const VectorOf<uint8_t, 32>& w,
                                            const VectorOf<int8_t, 32>& x) {
  using Bytes = VectorOf<char, 32>;
  const auto pairs =
      __builtin_ia32_pmaddubsw256(reinterpret_cast<Bytes>(w), reinterpret_cast<Bytes>(x));
  sums = __builtin_ia32_pmaddwd256(pairs, VectorOf<int16_t, 32>{} + int16_t{1});
}
[[gnu::always_inline]] inline void add_dots(VectorOf<int32_t, 32>& sums,
                                            const VectorOf<int32_t, 32>& w,
                                            const VectorOf<int32_t, 32>& x) {
  using Bytes = VectorOf<char, 32>;
  const auto quants = reinterpret_cast<Bytes>(w);
  const auto pairs =
      __builtin_ia32_pmaddubsw256(__builtin_ia32_pabsb256(quants),
                                  __builtin_ia32_psignb256(reinterpret_cast<Bytes>(x), quants));
  sums += __builtin_ia32_pmaddwd256(pairs, VectorOf<int16_t, 32>{} + int16_t{1});
}
#endif
[[gnu::always_inline]] inline void add_dots(VectorOf<int32_t, 16>& sums,
                                            const VectorOf<int32_t, 16>& w,
                                            const VectorOf<int32_t, 16>& x) {
  using Bytes = VectorOf<int8_t, 16>;
  const auto left = reinterpret_cast<const Bytes&>(w), right = reinterpret_cast<const Bytes&>(x);
  for (int i = 0; i < 16; ++i) sums[i / 4] += int32_t{left[i]} * right[i];
}

}  // namespace weft::cpu::int8
