// Transposes small blocks in vectors of any width. Include it below a file's own #pragma about
// optimization, which must cover these functions, too.
#pragma once

#include <cstdint>
#include <utility>

namespace weft::cpu {

// VectorAnywhere is a vector that is aligned only as its lanes are. It is a struct because Clang
// drops the alignment of an alias template.
template <class Lane, int bytes>
struct VectorAnywhere {
  using Type [[gnu::vector_size(bytes), gnu::aligned(alignof(Lane)), gnu::may_alias]] = Lane;
};
template <class Lane, int bytes>
using VectorOf = typename VectorAnywhere<Lane, bytes>::Type;
static_assert(alignof(VectorOf<float, 64>) == alignof(float));

template <class Low, int... lane>
[[gnu::always_inline]] inline auto joined(Low low, Low high, std::integer_sequence<int, lane...>) {
  return __builtin_shufflevector(low, high, lane...);
}
// Loads one vector from 16 bytes of each of several rows: at `from`, at `from` + stride, and so on.
template <class Lane, int bytes>
[[gnu::always_inline]] inline VectorOf<Lane, bytes> gather_rows(const Lane* from, int64_t stride) {
  if constexpr (bytes == 16) {
    return *reinterpret_cast<const VectorOf<Lane, 16>*>(from);
  } else {
    constexpr int lanes = bytes / static_cast<int>(sizeof(Lane));
    return joined(gather_rows<Lane, bytes / 2>(from, stride),
                  gather_rows<Lane, bytes / 2>(from + bytes / 32 * stride, stride),
                  std::make_integer_sequence<int, lanes>());
  }
}

// Interleaves the low or high halves of each 16 bytes of a and b, `group` lanes at a time.
template <int group, bool high, class Vector, int... lane>
[[gnu::always_inline]] inline Vector interleaved(Vector a, Vector b,
                                                 std::integer_sequence<int, lane...>) {
  constexpr int lanes = sizeof...(lane), side = lanes * 16 / static_cast<int>(sizeof(Vector));
  return __builtin_shufflevector(
      a, b,
      (lane / side * side + lane % side / group / 2 * group + lane % group + (high ? side / 2 : 0) +
       lane % side / group % 2 * lanes)...);
}

// Transposes the square matrix (2 x 2 or 4 x 4 lanes) that each 16 bytes of the 2 or 4 vectors
// form.
template <class Lane, int bytes>
[[gnu::always_inline]] inline void transpose_lanes(
    VectorOf<Lane, bytes> (&row)[16 / sizeof(Lane)]) {
  using Vector = VectorOf<Lane, bytes>;
  constexpr int side = 16 / static_cast<int>(sizeof(Lane));
  constexpr std::make_integer_sequence<int, bytes / static_cast<int>(sizeof(Lane))> all;
  if constexpr (side == 2) {
    const Vector first = interleaved<1, false>(row[0], row[1], all);
    row[1] = interleaved<1, true>(row[0], row[1], all);
    row[0] = first;
  } else {
    const Vector low = interleaved<1, false>(row[0], row[1], all);
    const Vector high = interleaved<1, true>(row[0], row[1], all);
    const Vector next_low = interleaved<1, false>(row[2], row[3], all);
    const Vector next_high = interleaved<1, true>(row[2], row[3], all);
    row[0] = interleaved<2, false>(low, next_low, all);
    row[1] = interleaved<2, true>(low, next_low, all);
    row[2] = interleaved<2, false>(high, next_high, all);
    row[3] = interleaved<2, true>(high, next_high, all);
  }
}

// Transposes 16 bytes of each row, for one row per lane of a vector: to[k * to_stride + i] = from[i
// * from_stride + k].
template <class Lane, int bytes>
[[gnu::always_inline]] inline void transpose_block(const Lane* from, int64_t from_stride, Lane* to,
                                                   int64_t to_stride) {
  using Vector = VectorOf<Lane, bytes>;
  constexpr int side = 16 / static_cast<int>(sizeof(Lane));
  Vector row[side];
#pragma GCC unroll 4
  for (int i = 0; i < side; ++i)
    row[i] = gather_rows<Lane, bytes>(from + i * from_stride, side * from_stride);
  transpose_lanes<Lane, bytes>(row);
#pragma GCC unroll 4
  for (int k = 0; k < side; ++k) *reinterpret_cast<Vector*>(to + k * to_stride) = row[k];
}

}  // namespace weft::cpu
