// The product of rows, rounded to int8, by a matrix in blocks (weft/base/block_format.h). A tile is
// as many columns as a vector has lanes: its quants are transposed to [k / 4, lane, 4] in the
// first-level cache, a range of k at a time, so that one instruction multiplies four neighbours of
// k in each lane, and all rows use them. The rows are rounded once for all threads. In a product of
// one row, as in decoding, quants are used as they are transposed, or, with AVX2, sums of products
// are transposed instead, which are fewer.
//
// Sums of integers are exact, and those of groups of them are in the order of k: results have the
// same bits on every instruction set, in any number of rows and threads.
//
// Rows, packers and products are one file, as they share the layouts of bundles and tiles, and each
// instruction set compiles packers and products into one function.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>

#include "weft/backends/cpu/elements.h"
#include "weft/backends/cpu/kernels.h"
#include "weft/base/block_format.h"
#include "weft/base/parallel.h"
#include "weft/base/rounding.h"

#if !defined(__clang__)
// GCC joins loads of scalars that are broadcast, which takes an instruction for each lane.
#pragma GCC optimize("O3", "no-tree-slp-vectorize")
#endif
#pragma GCC diagnostic ignored "-Wpsabi"  // wide vectors never cross a call
#include "weft/backends/cpu/block_product.h"
#include "weft/backends/cpu/transpose.h"
#include "weft/base/isa_dispatch.h"

namespace weft::cpu {
namespace {
constexpr int64_t neighbours = 32;  // of a row that have one scale
constexpr int64_t range = 512;      // numbers of a column that are transposed at a time
constexpr int64_t cache_line = 64;
constexpr int64_t heads_at_a_time = 2;  // blocks

template <int vector_bytes>
constexpr int most_rows = vector_bytes == 64 ? 8 : 4;  // at a time, by registers

// ---- integer dot products: each lane adds the products of its four bytes

// Dot says how: by VNNI, whose first factor has no sign, so that quants are stored plus 128 and
// sums begin at -128 times those of x; or by 16-bit sums of two products of magnitudes with the
// signs of both, at most 2 * 128 * 127 < 2^15.
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

#if defined(__clang__)
// Clang inlines these functions after their callers were inlined into those of the target.
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

// ---- the rows

// A Bundle is rows that are multiplied at a time.
struct Bundle {
  int64_t first, rows;
};
// Returns the bundle of a row: of `most` rows, or of 4 or 1 of those left.
Bundle bundle_of(int64_t row, int64_t m, int64_t most) {
  const int64_t left_from = m / most * most;
  if (row < left_from) return {row / most * most, most};
  if (most > 4 && row < left_from + 4 && left_from + 4 <= m) return {left_from, 4};
  return {row, 1};
}

// Rows are the rounded rows in scratch. A bundle follows the other, and has quants [k / 4, rows,
// 4], scales [k / 32, rows], and starts [k / group, rows]: -128 times the sum of each group of
// quants, 16 or 32, that a format scales together.
struct Rows {
  int8_t* quants;
  float* scales;
  int32_t* starts;

  static size_t bytes(int64_t m, int64_t k) {
    return static_cast<size_t>(
        round_up(m * k + m * k / neighbours * 4 + m * k / 16 * 4, cache_line));
  }
  Rows(std::byte* memory, int64_t m, int64_t k)
      : quants(reinterpret_cast<int8_t*>(memory)),
        scales(reinterpret_cast<float*>(memory + m * k)),
        starts(reinterpret_cast<int32_t*>(memory + m * k + m * k / neighbours * 4)) {}
};

// Rounds block `block` of 32 neighbours of a row. rounded_to_int8() of weft/ops/blocks.cpp defines
// the values.
void round_neighbours(const float* x, const Rows& rows, const Bundle& bundle, int64_t row,
                      int64_t block, int64_t k, int64_t group) {
  constexpr uint32_t magnitude = 0x7fffffff, infinity = 0x7f800000;
  uint32_t most_bits = 0;  // magnitudes have the order of their bits, and NaN is the greatest
  for (int i = 0; i < neighbours; ++i)
    most_bits = std::max(most_bits, std::bit_cast<uint32_t>(x[i]) & magnitude);
  const float most = std::bit_cast<float>(most_bits);
  const bool is_finite = most_bits < infinity;
  const float inverse = most > 0x1p-100F && is_finite ? 127 / most : 0;
  // The addition leaves no bits for fractions, so that the lowest byte is the integer.
  constexpr float without_fractions = 0x1.8p23F;
  int8_t quants[neighbours];
  for (int i = 0; i < neighbours; ++i) {
    const float scaled = is_finite ? x[i] * inverse : 0;
    quants[i] = static_cast<int8_t>(std::bit_cast<uint32_t>(scaled + without_fractions));
  }
  const int64_t lane = row - bundle.first;
  int8_t* to = rows.quants + bundle.first * k + (block * neighbours * bundle.rows + 4 * lane);
  for (int64_t i = 0; i < neighbours / 4; ++i)
    __builtin_memcpy(to + i * 4 * bundle.rows, quants + 4 * i, 4);
  rows.scales[bundle.first * (k / neighbours) + block * bundle.rows + lane] =
      is_finite ? most / 127 : std::numeric_limits<float>::quiet_NaN();
  int32_t* starts = rows.starts + bundle.first * (k / group);
  for (int64_t part = 0; part < neighbours / group; ++part) {
    int32_t sum = 0;
    for (int64_t i = 0; i < group; ++i) sum += quants[part * group + i];
    starts[(block * (neighbours / group) + part) * bundle.rows + lane] = -128 * sum;
  }
}

// ---- tiles

// Tile is a range of k of as many columns as vectors have lanes, in scratch.
template <int vector_bytes>
struct Tile {
  using Ints = VectorOf<int32_t, vector_bytes>;
  using Words = VectorOf<uint32_t, vector_bytes>;
  using Vector = VectorOf<float, vector_bytes>;
  static constexpr int lanes = vector_bytes / 4;

  Words quants[range / 4];                  // four neighbours of k in each lane
  Vector scales[range / 16];                // of groups of quants
  Vector leasts[range / 32];                // -1/128 of what is added to each number of a group
  uint32_t heads[range / 32][lanes];        // the first scales of blocks, as they are stored
  uint8_t copied[lanes * range / 32 * 34];  // blocks of the last columns, and of no columns
};

[[gnu::always_inline]] inline uint32_t word_at(const uint8_t* from) {
  uint32_t word;
  __builtin_memcpy(&word, from, sizeof(word));
  return word;
}
[[gnu::always_inline]] inline uint32_t half_word_at(const uint8_t* from) {
  return static_cast<uint32_t>(from[0] | from[1] << 8);
}

// Packer<..> writes the quants, scales and leasts of blocks to a tile.
template <int vector_bytes, Dot dot>
struct Packer {
  using T = Tile<vector_bytes>;
  using Ints = typename T::Ints;
  using Words = typename T::Words;
  using Vector = typename T::Vector;
  static constexpr int lanes = T::lanes;

  // Returns 16 bytes of each column: vector j has bytes 4 j to 4 j + 3.
  struct Four {
    Words at[4];
  };
  [[gnu::always_inline]] static inline Four columns_at(const uint8_t* from, int64_t stride) {
    Four four;
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i)
      four.at[i] = reinterpret_cast<Words>(
          gather_rows<uint8_t, vector_bytes>(from + i * stride, 4 * stride));
    transpose_lanes<uint32_t, vector_bytes>(four.at);
    return four;
  }
  // Returns the float16 numbers of the lower halves of words.
  [[gnu::always_inline]] static inline Vector halves(Words words) {
    const Words sign = (words & 0x8000) << 16, magnitude = words & 0x7fff;
    // The exponent's bias differs by 112; infinity and NaN keep the greatest exponent.
    const Vector number = reinterpret_cast<Vector>(magnitude << 13) * 0x1p112F;
    const Words beyond = reinterpret_cast<Words>(magnitude >= 0x7c00) & 0x7f800000;
    return reinterpret_cast<Vector>(reinterpret_cast<Words>(number) | beyond | sign);
  }
  [[gnu::always_inline]] static inline Vector numbers(Words words) {
    return __builtin_convertvector(reinterpret_cast<Ints>(words), Vector);
  }
  // Returns bytes plus a number.
  template <int number>
  [[gnu::always_inline]] static inline Words plus(Words bytes) {
    using Bytes = VectorOf<uint8_t, vector_bytes>;
    constexpr auto added = static_cast<uint8_t>(number);
    if constexpr (added == 0) return bytes;
    return reinterpret_cast<Words>(reinterpret_cast<Bytes>(bytes) + added);
  }
};

constexpr uint32_t low_nibbles = 0x0f0f0f0f;

// 32 quants of one column, as a block has them: with a sign where `is_signed`, else plus `zero`.
using Piece = VectorOf<uint8_t, 32>;
using FullWords = VectorOf<uint32_t, 32>;
[[gnu::always_inline]] inline Piece piece_at(const uint8_t* from) {
  Piece piece;
  __builtin_memcpy(&piece, from, sizeof(piece));
  return piece;
}
// Returns 16 bytes twice.
[[gnu::always_inline]] inline FullWords twice(const uint8_t* from) {
  VectorOf<uint32_t, 16> once;
  __builtin_memcpy(&once, from, sizeof(once));
#if !defined(__clang__)
  // GCC 12 needs its builtin to load and copy in one instruction.
  return reinterpret_cast<FullWords>(
      __builtin_ia32_vbroadcastsi256(reinterpret_cast<VectorOf<long long, 16>>(once)));
#else
  return __builtin_shufflevector(once, once, 0, 1, 2, 3, 0, 1, 2, 3);
#endif
}
// Returns the bits of `mask` in each of 32 bytes, after a shift.
[[gnu::always_inline]] inline Piece bits_at(const uint8_t* from, int shift, uint8_t mask) {
  FullWords words;
  __builtin_memcpy(&words, from, sizeof(words));
  return reinterpret_cast<Piece>(words >> shift & mask * uint32_t{0x01010101});
}

// Each packer of a layout has the extents of its blocks, scale(tile, index, block, stride), which
// writes the scales of block `index` of a tile, where `block` is that of the first column,
// quants(block, stride, to), which calls to(i, quants) with the numbers 4 i to 4 i + 3 of all
// columns, in some order of i, and piece(block, number), which returns 32 quants of a column.
// `head` is where the first scale is, -1: it needs none.
template <int vector_bytes, Dot dot>
struct Bytes8 : Packer<vector_bytes, dot> {
  using P = Packer<vector_bytes, dot>;
  static constexpr int numbers = 32, bytes = 34, group = 32, head = 0;
  static constexpr bool has_least = false, is_signed = true;
  static constexpr int zero = 0;
  [[gnu::always_inline]] static inline void scale(typename P::T& tile, int64_t index,
                                                  const uint8_t* /*block*/, int64_t /*stride*/) {
    tile.scales[index] = P::halves(*reinterpret_cast<typename P::Words*>(tile.heads[index]));
  }
  [[gnu::always_inline]] static inline Piece piece(const uint8_t* block, int /*number*/) {
    return piece_at(block + 2);
  }
  template <class To>
  [[gnu::always_inline]] static inline void quants(const uint8_t* block, int64_t stride,
                                                   const To& to) {
    unrolled<2>([&](auto part) __attribute__((always_inline)) {
      const auto four = P::columns_at(block + 2 + 16 * part, stride);
      unrolled<4>([&](auto j) __attribute__((always_inline)) { to(part * 4 + j, four.at[j]); });
    });
  }
};

template <int vector_bytes, Dot dot, int bits, bool least>
struct Nibbles : Packer<vector_bytes, dot> {
  using P = Packer<vector_bytes, dot>;
  using Words = typename P::Words;
  static constexpr int fifths = least ? 4 : 2, nibbles = fifths + (bits == 5 ? 4 : 0);
  static constexpr int numbers = 32, bytes = nibbles + 16, group = 32, head = 0;
  static constexpr bool has_least = least, is_signed = false;
  static constexpr int zero = least ? 0 : 1 << (bits - 1);
  [[gnu::always_inline]] static inline void scale(typename P::T& tile, int64_t index,
                                                  const uint8_t* /*block*/, int64_t /*stride*/) {
    const Words head_words = *reinterpret_cast<Words*>(tile.heads[index]);
    tile.scales[index] = P::halves(head_words & 0xffff);
    if (least) tile.leasts[index] = P::halves(head_words >> 16) * (-1.0F / 128);
  }
  [[gnu::always_inline]] static inline Piece piece(const uint8_t* block, int /*number*/) {
    auto quants = reinterpret_cast<Piece>(
        twice(block + nibbles) >> FullWords{0, 0, 0, 0, 4, 4, 4, 4} & low_nibbles);
    if constexpr (bits == 5) {
      const FullWords words = FullWords{} + word_at(block + fifths);
      const auto bytes = reinterpret_cast<Piece>(words);
      const Piece spread =
          __builtin_shufflevector(bytes, bytes, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 18,
                                  18, 18, 18, 18, 18, 18, 18, 19, 19, 19, 19, 19, 19, 19, 19);
      constexpr Piece bit = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128,
                             1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
      quants |= reinterpret_cast<Piece>((spread & bit) != 0) & 16;
    }
    return quants;
  }
  template <class To>
  [[gnu::always_inline]] static inline void quants(const uint8_t* block, int64_t stride,
                                                   const To& to) {
    [[maybe_unused]] Words all_fifths{};
    if constexpr (bits == 5) {
      uint32_t words[P::lanes];
      for (int i = 0; i < P::lanes; ++i) words[i] = word_at(block + i * stride + fifths);
      all_fifths = *reinterpret_cast<Words*>(words);
    }
    const auto four = P::columns_at(block + nibbles, stride);
    unrolled<8>([&](auto j) __attribute__((always_inline)) {
      Words quants = four.at[j % 4] >> (j < 4 ? 0 : 4) & low_nibbles;
      // The product moves bit i of four to bit 7 i + i = 8 i, among others.
      if constexpr (bits == 5)
        quants |= ((all_fifths >> 4 * j & 15) * 0x00204081 & 0x01010101) << 4;
      to(j, quants);
    });
  }
};

template <int vector_bytes, Dot dot, int bits>
struct Lines : Packer<vector_bytes, dot> {
  using P = Packer<vector_bytes, dot>;
  using Words = typename P::Words;
  static constexpr int fifths = 16, nibbles = fifths + (bits == 5 ? 32 : 0);
  static constexpr int numbers = 256, bytes = nibbles + 128, group = 32, head = -1;
  static constexpr bool has_least = true, is_signed = false;
  static constexpr int zero = 0;
  [[gnu::always_inline]] static inline void scale(typename P::T& tile, int64_t index,
                                                  const uint8_t* block, int64_t stride) {
    // Four bytes each: d and m, scales and mins of four groups and upper bits of four others, the
    // lower bits of those.
    const auto first = P::columns_at(block, stride);
    const auto d = P::halves(first.at[0] & 0xffff), m = P::halves(first.at[0] >> 16);
    constexpr uint32_t sixes = 0x3f3f3f3f, upper = 0x30303030;
    const Words s[2] = {first.at[1] & sixes,
                        (first.at[3] & low_nibbles) | (first.at[1] >> 2 & upper)};
    const Words t[2] = {first.at[2] & sixes,
                        (first.at[3] >> 4 & low_nibbles) | (first.at[2] >> 2 & upper)};
    for (int g = 0; g < 8; ++g) {
      tile.scales[index * 8 + g] = d * P::numbers(s[g / 4] >> 8 * (g % 4) & 255);
      tile.leasts[index * 8 + g] = m * P::numbers(t[g / 4] >> 8 * (g % 4) & 255) * (1.0F / 128);
    }
  }
  [[gnu::always_inline]] static inline Piece piece(const uint8_t* block, int number) {
    Piece quants = bits_at(block + nibbles + number / 2 * 32, number % 2 * 4, 15);
    if constexpr (bits == 5) {
      const Piece fifth = bits_at(block + fifths, number, 1);
      quants |= reinterpret_cast<Piece>(reinterpret_cast<FullWords>(fifth) << 4);
    }
    return quants;
  }
  template <class To>
  [[gnu::always_inline]] static inline void quants(const uint8_t* block, int64_t stride,
                                                   const To& to) {
    unrolled<2>([&](auto part) __attribute__((always_inline)) {
      [[maybe_unused]] typename P::Four all_fifths;
      if constexpr (bits == 5) all_fifths = P::columns_at(block + fifths + 16 * part, stride);
      unrolled<4>([&](auto pair) __attribute__((always_inline)) {
        const auto four = P::columns_at(block + nibbles + 32 * pair + 16 * part, stride);
        unrolled<8>([&](auto i) __attribute__((always_inline)) {
          const int g = 2 * pair + i / 4, j = i % 4;
          Words quants = four.at[j] >> (g % 2 * 4) & low_nibbles;
          if constexpr (bits == 5) quants |= (all_fifths.at[j] >> g & 0x01010101) << 4;
          to(g * 8 + part * 4 + j, quants);
        });
      });
    });
  }
};

template <int vector_bytes, Dot dot>
struct Sixes : Packer<vector_bytes, dot> {
  using P = Packer<vector_bytes, dot>;
  using Words = typename P::Words;
  using Ints = typename P::Ints;
  static constexpr int numbers = 256, bytes = 210, group = 16, head = 208;
  static constexpr bool has_least = false, is_signed = false;
  static constexpr int zero = 32;
  [[gnu::always_inline]] static inline void scale(typename P::T& tile, int64_t index,
                                                  const uint8_t* block, int64_t stride) {
    const auto d = P::halves(*reinterpret_cast<Words*>(tile.heads[index]));
    const auto scales = P::columns_at(block + 192, stride);
    for (int g = 0; g < 16; ++g) {
      const auto signed_scale =
          reinterpret_cast<Ints>(scales.at[g / 4] << (24 - 8 * (g % 4))) >> 24;
      tile.scales[index * 16 + g] = d * __builtin_convertvector(signed_scale, typename P::Vector);
    }
  }
  [[gnu::always_inline]] static inline Piece piece(const uint8_t* block, int number) {
    const int half = number / 4, place = number % 4;
    const Piece lower = bits_at(block + half * 64 + place % 2 * 32, place / 2 * 4, 15);
    const Piece upper = bits_at(block + 128 + half * 32, place * 2, 3);
    return lower | reinterpret_cast<Piece>(reinterpret_cast<FullWords>(upper) << 4);
  }
  template <class To>
  [[gnu::always_inline]] static inline void quants(const uint8_t* block, int64_t stride,
                                                   const To& to) {
    unrolled<4>([&](auto quarter) __attribute__((always_inline)) {
      const int half = quarter / 2, part = quarter % 2;
      const auto upper = P::columns_at(block + 128 + half * 32 + 16 * part, stride);
      unrolled<2>([&](auto side) __attribute__((always_inline)) {
        const auto four = P::columns_at(block + half * 64 + side * 32 + 16 * part, stride);
        unrolled<8>([&](auto i) __attribute__((always_inline)) {
          const int place = side + i / 4 * 2, j = i % 4;
          const Words lower = four.at[j] >> place / 2 * 4 & low_nibbles;
          const Words pairs = upper.at[j] >> place * 2 & 0x03030303;
          to(half * 32 + place * 8 + part * 4 + j, lower | pairs << 4);
        });
      });
    });
  }
};

// ---- the product

// Call holds the operands of one call.
struct Call {
  int64_t m, n, k;
  const BlockFormat* format;
  Rows rows;
  const uint8_t* w;
  std::byte* result;  // [m, n]
  DType dtype;        // of the result
};

template <int vector_bytes, Dot dot>
struct Blocks {
  using T = Tile<vector_bytes>;
  using Ints = typename T::Ints;
  using Vector = typename T::Vector;
  static constexpr int lanes = T::lanes, most = most_rows<vector_bytes>;

  // Calls body.operator()<Format>() with the packer of a format.
  template <class Body>
  [[gnu::always_inline]] static inline void with_format(const BlockFormat& format,
                                                        const Body& body) {
    switch (format.layout) {
      case BlockLayout::bytes:
        return body.template operator()<Bytes8<vector_bytes, dot>>();
      case BlockLayout::nibbles:
        if (format.bits == 4 && !format.has_least)
          return body.template operator()<Nibbles<vector_bytes, dot, 4, false>>();
        if (format.bits == 4)
          return body.template operator()<Nibbles<vector_bytes, dot, 4, true>>();
        if (!format.has_least)
          return body.template operator()<Nibbles<vector_bytes, dot, 5, false>>();
        return body.template operator()<Nibbles<vector_bytes, dot, 5, true>>();
      case BlockLayout::lines:
        if (format.bits == 4) return body.template operator()<Lines<vector_bytes, dot, 4>>();
        return body.template operator()<Lines<vector_bytes, dot, 5>>();
      case BlockLayout::sixes:
        return body.template operator()<Sixes<vector_bytes, dot>>();
    }
  }

  // Reads the first scales of blocks [begin, end) of each column, well before they are used, as a
  // vector is loaded late after its lanes were stored.
  template <class Format>
  [[gnu::always_inline]] static inline void read_heads(T& tile, const uint8_t* from, int64_t stride,
                                                       int64_t begin, int64_t end) {
    if constexpr (Format::head >= 0)
      for (int64_t column = 0; column < lanes; ++column) {
        const uint8_t* head = from + column * stride + begin * Format::bytes + Format::head;
        for (int64_t block = begin; block < end; ++block, head += Format::bytes)
          tile.heads[block][column] = Format::has_least ? word_at(head) : half_word_at(head);
      }
  }
  // Prefetches a cache line of each column. Those of a whole range at once would wait for each
  // other, and the products for them.
  [[gnu::always_inline]] static inline void prefetch(const uint8_t* line, int64_t stride) {
#pragma GCC unroll 16
    for (int64_t column = 0; column < lanes; ++column)
      __builtin_prefetch(line + column * stride, 0, 3);
  }
  // Prefetches what lies behind `next` as block `block` lies in its range, so that each line is
  // prefetched once, and all evenly.
  template <class Format>
  [[gnu::always_inline]] static inline void prefetch_beside(const uint8_t* next, int64_t block,
                                                            int64_t stride) {
    const int64_t end = (block + 1) * Format::bytes;
    for (int64_t line = round_up(block * Format::bytes, cache_line); line < end; line += cache_line)
      prefetch(next + line, stride);
  }
  // Packs `count` numbers of each column. `next` is where the range after them begins.
  template <class Format>
  [[gnu::always_inline]] static inline void pack(T& tile, const uint8_t* from, int64_t stride,
                                                 int64_t count, const uint8_t* next) {
    constexpr int added = (dot == Dot::vnni ? 128 : 0) - Format::zero, words = Format::numbers / 4;
    for (int64_t block = 0; block < count / Format::numbers; ++block) {
      prefetch_beside<Format>(next, block, stride);
      Format::scale(tile, block, from + block * Format::bytes, stride);
      Format::quants(from + block * Format::bytes, stride,
                     [&](int i, typename T::Words quants) __attribute__((always_inline)) {
                       tile.quants[block * words + i] = Format::template plus<added>(quants);
                     });
    }
  }

  // OneRow is the only row, from a number of it on.
  template <class Format>
  struct OneRow {
    const int8_t* quants;
    const float* scales;
    const int32_t* starts;
    OneRow(const Rows& rows, int64_t from)
        : quants(rows.quants + from),
          scales(rows.scales + from / neighbours),
          starts(rows.starts + from / Format::group) {}

    // Adds to `all` the products of group g, of quants plus `more`: 0, or a power of 2 up to 128.
    // The operations on floats are those of multiply().
    template <int more>
    [[gnu::always_inline]] inline void add(const T& tile, int64_t g, Ints dots, Vector& all) const {
      if constexpr (more != 0) dots += starts[g] >> std::countr_zero(128U / more);
      Vector numbers = __builtin_convertvector(dots, Vector) * tile.scales[g];
      if constexpr (Format::has_least) numbers += tile.leasts[g] * static_cast<float>(starts[g]);
      all += numbers * scales[g * Format::group / neighbours];
    }
  };

  // Adds the products of the only row, by vectors of all columns that are used as they are
  // transposed.
  template <class Format>
  [[gnu::always_inline]] static inline void multiply_packed(T& tile, const Call& call,
                                                            const uint8_t* w, int64_t stride,
                                                            int64_t from, int64_t count,
                                                            const uint8_t* next, Vector& sums) {
    constexpr int groups = Format::numbers / Format::group;
    constexpr int added = Format::is_signed ? 128 : 0;
    const OneRow<Format> row(call.rows, from);
    const int8_t* x = row.quants;
    const int64_t blocks = count / Format::numbers;
    const uint8_t* begin = w;
    read_heads<Format>(tile, begin, stride, 0, std::min(heads_at_a_time, blocks));
    Vector all = sums;
    for (int64_t block = 0; block < blocks; ++block) {
      if (const int64_t later = block + heads_at_a_time;
          block % heads_at_a_time == 0 && later < blocks)
        read_heads<Format>(tile, begin, stride, later, std::min(later + heads_at_a_time, blocks));
      prefetch_beside<Format>(next, block, stride);
      Format::scale(tile, block, w, stride);
      Ints dots[groups];
      unrolled<groups>([&](auto g) __attribute__((always_inline)) { dots[g] = Ints{}; });
      Format::quants(w, stride,
                     [&](int i, typename T::Words quants) __attribute__((always_inline)) {
                       add_dots(dots[i * 4 / Format::group],
                                reinterpret_cast<Ints>(Format::template plus<added>(quants)),
                                filled<Ints>(x + i * 4));
                     });
      unrolled<groups>([&](auto g) __attribute__((always_inline)) {
        row.template add<added + Format::zero>(tile, block * groups + g, dots[g], all);
      });
      w += Format::bytes;
      x += Format::numbers;
    }
    sums = all;
  }

  // Returns the sums of neighbours: of a in the lower half of each 16 bytes, of b in the upper.
  [[gnu::always_inline]] static inline Ints pairs(Ints a, Ints b) {
    // Floats are shuffled in one instruction, and keep the bits of the integers.
    const auto x = reinterpret_cast<Vector>(a), y = reinterpret_cast<Vector>(b);
    const auto even = __builtin_shufflevector(x, y, 0, 2, 8, 10, 4, 6, 12, 14);
    const auto odd = __builtin_shufflevector(x, y, 1, 3, 9, 11, 5, 7, 13, 15);
    return reinterpret_cast<Ints>(even) + reinterpret_cast<Ints>(odd);
  }
  // Adds the products of the only row, whose quants each column meets as its blocks have them:
  // nothing is transposed but sums.
  template <class Format>
  [[gnu::always_inline]] static inline void stream(T& tile, const Call& call, const uint8_t* w,
                                                   int64_t stride, int64_t from, int64_t count,
                                                   const uint8_t* next, Vector& sums) {
    constexpr int group = Format::group, pieces = Format::numbers / 32;
    const OneRow<Format> only(call.rows, from);
    // Addresses of eight columns are sums of few registers.
    const int64_t after = 4 * stride, thrice = 3 * stride;
    Vector all = sums;
    for (int64_t block = 0; block < count / Format::numbers; ++block, w += Format::bytes) {
      Format::scale(tile, block, w, stride);
      unrolled<pieces>([&](auto piece) __attribute__((always_inline)) {
        const int64_t at = block * pieces + piece, line = cache_line * piece;
        if (line < Format::bytes) prefetch(next + block * Format::bytes + line, stride);
        VectorOf<int8_t, 32> row;
        __builtin_memcpy(&row, only.quants + at * 32, sizeof(row));
        Ints dots[lanes];
        unrolled<lanes>([&](auto column) __attribute__((always_inline)) {
          const uint8_t* four = column < 4 ? w : w + after;
          const int64_t offset = column % 4 == 3 ? thrice : column % 4 * stride;
          const Piece quants = Format::piece(four + offset, piece);
          if constexpr (Format::is_signed) {
            dots[column] = Ints{};
            add_dots(dots[column], reinterpret_cast<const Ints&>(quants),
                     reinterpret_cast<const Ints&>(row));
          } else {
            set_dots(dots[column], quants, row);
          }
        });
        const Ints first = pairs(pairs(dots[0], dots[1]), pairs(dots[2], dots[3]));
        const Ints last = pairs(pairs(dots[4], dots[5]), pairs(dots[6], dots[7]));
        const Ints low = __builtin_shufflevector(first, last, 0, 1, 2, 3, 8, 9, 10, 11);
        const Ints high = __builtin_shufflevector(first, last, 4, 5, 6, 7, 12, 13, 14, 15);
        if constexpr (group == 32) {
          only.template add<Format::zero>(tile, at, low + high, all);
        } else {
          only.template add<Format::zero>(tile, 2 * at, low, all);
          only.template add<Format::zero>(tile, 2 * at + 1, high, all);
        }
      });
    }
    sums = all;
  }

  // Adds the products of a bundle from number `from` on to sums.
  template <class Format, int rows>
  [[gnu::always_inline]] static inline void multiply(const T& tile, const Call& call, int64_t first,
                                                     int64_t from, int64_t count, Vector* sums) {
    constexpr int group = Format::group, words = group / 4;
    const int8_t* x = call.rows.quants + first * call.k + from * rows;
    const float* scales = call.rows.scales + (first * call.k + from * rows) / neighbours;
    const int32_t* starts = call.rows.starts + (first * call.k + from * rows) / group;
    Vector all[rows];
    unrolled<rows>([&](auto i) __attribute__((always_inline)) { all[i] = sums[i]; });
    for (int64_t g = 0; g < count / group; ++g) {
      Ints dots[rows];
      unrolled<rows>([&](auto i) __attribute__((always_inline)) {
        dots[i] = Ints{};
        if constexpr (dot == Dot::vnni) dots[i] = filled<Ints>(starts + g * rows + i);
      });
      unrolled<words>([&](auto j) __attribute__((always_inline)) {
        const auto w = reinterpret_cast<Ints>(tile.quants[g * words + j]);
        unrolled<rows>([&](auto i) __attribute__((always_inline)) {
          add_dots(dots[i], w, filled<Ints>(x + (j * rows + i) * 4));
        });
      });
      const float* scale = scales + g * group / neighbours * rows;
      unrolled<rows>([&](auto i) __attribute__((always_inline)) {
        Vector numbers = __builtin_convertvector(dots[i], Vector) * tile.scales[g];
        if constexpr (Format::has_least)
          numbers +=
              tile.leasts[g] * __builtin_convertvector(filled<Ints>(starts + g * rows + i), Vector);
        all[i] += numbers * scale[i];
      });
      x += group * rows;
    }
    unrolled<rows>([&](auto i) __attribute__((always_inline)) { sums[i] = all[i]; });
  }

  [[gnu::always_inline]] static inline void write(const Call& call, int64_t row, int64_t column,
                                                  float sum) {
    write_sum(call.result, call.dtype, row * call.n + column, sum);
  }

  // Computes one tile of columns; sums are those of all rows.
  template <class Format>
  [[gnu::always_inline]] static inline void compute(const Call& call, int64_t first, T& tile,
                                                    Vector* sums) {
    const int64_t w_row = call.k / Format::numbers * Format::bytes;
    const int64_t columns = std::min<int64_t>(lanes, call.n - first);
    const uint8_t* w = call.w + first * w_row;
    for (int64_t row = 0; row < call.m; ++row) sums[row] = Vector{};
    for (int64_t from = 0; from < call.k; from += range) {
      const int64_t count = std::min(range, call.k - from);
      const int64_t bytes = count / Format::numbers * Format::bytes;
      const uint8_t* begin = w + from / Format::numbers * Format::bytes;
      const bool whole = columns == lanes;
      if (!whole)  // the last column stands for those that are none
        for (int64_t i = 0; i < lanes; ++i)
          __builtin_memcpy(tile.copied + i * bytes, begin + std::min(i, columns - 1) * w_row,
                           static_cast<size_t>(bytes));
      const uint8_t* blocks = whole ? begin : tile.copied;
      const int64_t stride = whole ? w_row : bytes;
      const uint8_t* next = !whole                  ? blocks
                            : from + range < call.k ? begin + bytes
                                                    : w + lanes * w_row;
      if constexpr (dot == Dot::vnni) {
        if (call.m == 1) {
          multiply_packed<Format>(tile, call, blocks, stride, from, count, next, sums[0]);
          continue;
        }
      }
      read_heads<Format>(tile, blocks, stride, 0, count / Format::numbers);
      if constexpr (vector_bytes == 32) {
        if (call.m == 1) {
          stream<Format>(tile, call, blocks, stride, from, count, next, sums[0]);
          continue;
        }
      }
      pack<Format>(tile, blocks, stride, count, next);
      for (int64_t row = 0; row < call.m;) {
        const Bundle bundle = bundle_of(row, call.m, most);
        if (bundle.rows == most)
          multiply<Format, most>(tile, call, row, from, count, sums + row);
        else if (bundle.rows == 4)
          multiply<Format, 4>(tile, call, row, from, count, sums + row);
        else
          multiply<Format, 1>(tile, call, row, from, count, sums + row);
        row += bundle.rows;
      }
    }
    for (int64_t row = 0; row < call.m; ++row)
      for (int64_t i = 0; i < columns; ++i) write(call, row, first + i, sums[row][i]);
  }

  // Computes the tiles [begin, end) of columns.
  [[gnu::always_inline]] static inline void run(const Call* call, std::byte* scratch, int64_t begin,
                                                int64_t end) {
    auto& tile = *reinterpret_cast<T*>(scratch);
    auto* sums = reinterpret_cast<Vector*>(scratch + round_up(sizeof(T), cache_line));
    with_format(*call->format, [&]<class Format>() __attribute__((always_inline)) {
      for (int64_t i = begin; i < end; ++i) compute<Format>(*call, i * lanes, tile, sums);
    });
  }
};

using Runner = void (*)(const Call*, std::byte*, int64_t, int64_t);
struct Variant {
  Runner run;
  int64_t lanes, most_rows;
  size_t tile_bytes;
};
Variant variant() {
  constexpr auto of = []<int bytes>(Runner run) {
    return Variant{run, Tile<bytes>::lanes, most_rows<bytes>,
                   round_up(sizeof(Tile<bytes>), cache_line)};
  };
  if (isa() >= Isa::avx512_bf16)
    return of.template operator()<64>(
        run_vnni<Blocks<64, Dot::vnni>, const Call*, std::byte*, int64_t, int64_t>);
  if (isa() >= Isa::avx2)
    return of.template operator()<32>(
        run_avx2<Blocks<32, Dot::signs>, const Call*, std::byte*, int64_t, int64_t>);
  return of.template operator()<16>(
      run_baseline<Blocks<16, Dot::signs>, const Call*, std::byte*, int64_t, int64_t>);
}

struct Extents : BlockExtents {
  using BlockExtents::BlockExtents;
  // Bytes of scratch: the rounded rows, then a tile and its sums for each thread.
  size_t own_bytes() const {
    const Variant chosen = variant();
    return round_up(chosen.tile_bytes + static_cast<size_t>(m * chosen.lanes) * sizeof(float),
                    cache_line);
  }
  size_t workspace(int threads) const {
    return Rows::bytes(m, k) + static_cast<size_t>(threads) * own_bytes();
  }
};

class BlockInt8Matmul : public BlockProduct<Extents> {
 public:
  using BlockProduct::BlockProduct;

 private:
  void multiply(const std::byte* x, int64_t m, const std::byte* w, std::byte* to,
                void* workspace) const override {
    const int64_t n = extents_.n, k = extents_.k;
    auto* memory = static_cast<std::byte*>(workspace);
    const Rows rows(memory, m, k);
    round_rows(x, m, rows);
    const Call call{m, n, k, format_, rows, reinterpret_cast<const uint8_t*>(w), to, dtype()};
    const int64_t tiles = ceil_div(n, variant_.lanes);
    const auto parts = std::min<int64_t>(threads_, tiles);
    std::byte* scratch = memory + Rows::bytes(extents_.m, k);
    const size_t own = extents_.own_bytes();
    parallel_for(parts, [&](int64_t begin, int64_t end) {
      for (int64_t part = begin; part < end; ++part)
        variant_.run(&call, scratch + static_cast<size_t>(part) * own, tiles * part / parts,
                     tiles * (part + 1) / parts);
    });
  }

  void round_rows(const std::byte* x, int64_t m, const Rows& rows) const {
    // Fewer numbers are rounded before other threads have begun.
    constexpr int64_t numbers_alone = 16384;
    const int64_t k = extents_.k, each = k / neighbours, blocks = m * each;
    const int64_t group = format_->layout == BlockLayout::sixes ? 16 : 32;
    auto round_blocks = [&](int64_t begin, int64_t end) {
      with_float(dtype(), [&](auto element, auto) {
        using Element = decltype(element);
        const auto* from = reinterpret_cast<const Element*>(x);
        for (int64_t block = begin; block < end; ++block) {
          float wide[neighbours];
          for (int64_t i = 0; i < neighbours; ++i)
            wide[i] = to_lane<float>(from[block * neighbours + i]);
          const int64_t row = block / each;
          round_neighbours(wide, rows, bundle_of(row, m, variant_.most_rows), row, block % each, k,
                           group);
        }
      });
    };
    if (blocks * neighbours <= numbers_alone) return round_blocks(0, blocks);
    parallel_for(blocks, round_blocks);
  }

  Variant variant_ = variant();
};
}  // namespace

std::optional<KernelChoice> choose_matmul_blocks_int8(const Node& node,
                                                      std::span<const Placement>) {
  return choose_block_product<Extents>(node);
}
std::unique_ptr<Kernel> compile_matmul_blocks_int8(const Launch& launch) {
  return std::make_unique<BlockInt8Matmul>(launch);
}

}  // namespace weft::cpu
