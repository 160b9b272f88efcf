// Reads blocks of a matrix, of one column per lane of a vector: a packer for each layout
// (weft/base/numbers/block_format.h). Files include it after their pragmas, which its functions
// need.
#pragma once

#include <cstdint>

#include "weft/backends/cpu/blocks/int8_dots.h"
#include "weft/backends/cpu/blocks/product.h"

namespace weft::cpu::int8 {

inline constexpr int64_t range = 512;  // numbers of a column that a tile holds

// Tile is a range of k of one column per lane of a vector, in scratch.
template <int vector_bytes>
struct Tile {
  using Ints = VectorOf<int32_t, vector_bytes>;
  using Words = VectorOf<uint32_t, vector_bytes>;
  using Vector = VectorOf<float, vector_bytes>;
  static constexpr int lanes = vector_bytes / 4;

  Words quants[range / 4];                  // four neighbours of k in each lane
  Vector scales[range / 16];                // scales of groups of quants
  Vector leasts[range / 32];                // -1/128 of the minimum that a group's numbers add
  uint32_t heads[range / 32][lanes];        // the first scales of blocks, as they are stored
  uint8_t copied[lanes * range / 32 * 34];  // last columns, the last one repeated to a whole tile
};

[[gnu::always_inline]] inline uint32_t word_at(const uint8_t* from) {
  uint32_t word;
  __builtin_memcpy(&word, from, sizeof(word));
  return word;
}
[[gnu::always_inline]] inline uint32_t half_word_at(const uint8_t* from) {
  return static_cast<uint32_t>(from[0] | from[1] << 8);
}

// A Packer reads the quants of blocks, and writes their scales and leasts to a tile.
template <int vector_bytes, Dot dot>
struct Packer {
  using T = Tile<vector_bytes>;
  using Ints = typename T::Ints;
  using Words = typename T::Words;
  using Vector = typename T::Vector;
  static constexpr int lanes = T::lanes;

  // Four has 16 bytes of each column: vector j has bytes 4 j to 4 j + 3.
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

inline constexpr uint32_t low_nibbles = 0x0f0f0f0f;

// A Piece is 32 quants of one column as blocks store them: signed if the format `is_signed`, else
// unsigned with `zero` added.
using Piece = VectorOf<uint8_t, 32>;
using FullWords = VectorOf<uint32_t, 32>;
[[gnu::always_inline]] inline Piece piece_at(const uint8_t* from) {
  Piece piece;
  __builtin_memcpy(&piece, from, sizeof(piece));
  return piece;
}
// Returns both pieces in one vector, `first` in its lower half.
[[gnu::always_inline]] inline VectorOf<uint8_t, 64> both(Piece first, Piece second) {
  return [&]<int... i>(std::integer_sequence<int, i...>) __attribute__((always_inline)) {
    return __builtin_shufflevector(first, second, i...);
  }(std::make_integer_sequence<int, 64>());
}
// Returns a vector with the 16 bytes at `from` in both halves.
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
// Returns 32 bytes, each shifted right by `shift` and masked by `mask`.
[[gnu::always_inline]] inline Piece bits_at(const uint8_t* from, int shift, uint8_t mask) {
  FullWords words;
  __builtin_memcpy(&words, from, sizeof(words));
  return reinterpret_cast<Piece>(words >> shift & mask * uint32_t{0x01010101});
}

// A packer of a layout has the extents of a block and three functions, where `block` is the first
// column's block. scale(tile, index, block, stride) writes the scales of block `index` to the tile.
// quants(block, stride, to) calls to(i, quants) with the numbers 4 i to 4 i + 3 of all columns, in
// some order of i. piece(block, number) returns 32 quants of one column. `head` is the byte of a
// block at which its first scale begins; -1: scale() does not use Tile::heads.
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
      // The multiplication copies bit i of the four bits to bit i + 7 i = 8 i; the mask drops its
      // other copies.
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
    // `first` has four words: d and m; the scales of groups 0 to 3, with the upper bits of the
    // scales of groups 4 to 7; the mins in the same way; the lower bits of scales and mins of
    // groups 4 to 7.
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

}  // namespace weft::cpu::int8
