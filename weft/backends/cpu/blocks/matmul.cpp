// Computes the product of rows by a matrix in blocks (weft/base/numbers/block_format.h): decoding
// reads each block from memory once, and products of many rows, as of prompts, decode a group of
// columns into the cache and use it for all of them. No decoded copy of the matrix exists.
//
// The terms of one element are summed in an order that depends on K and the instruction set alone:
// a row of a product has the bits of the same row by itself.
//
// This is one file, as each instruction set compiles all products into one function.
#include <algorithm>

#include "weft/backends/cpu/kernels.h"
#include "weft/base/host/parallel.h"
#include "weft/base/numbers/block_format.h"
#include "weft/base/numbers/rounding.h"

// A multiply-add is one operation of a product, so it may be contracted to one instruction.
#if defined(__clang__)
#pragma clang fp contract(fast)
#else
#pragma GCC optimize("O3", "fp-contract=fast")
#endif
#include "weft/backends/cpu/blocks/product.h"
#include "weft/backends/cpu/rows/transpose.h"
#include "weft/backends/cpu/simd/elements.h"
#include "weft/base/host/isa_dispatch.h"

namespace weft::cpu {
namespace {
// For up to few_rows rows, a range of k of one tile's columns is decoded at a time, which stays in
// the first-level cache. For more rows, a group of whole columns is decoded at a time, which stays
// in the second-level cache.
constexpr int64_t few_rows = 16, range_of_few = 512, group_bytes = int64_t{160} << 10;
constexpr int64_t tile_rows = 4, widest_lanes = 16;
// Up to this many rows multiply each block while it is decoded in registers, without scratch.
constexpr int streamed_rows = 4;

// ---- decoders: 16 numbers at a time are scale * quant + least

using Quants = VectorOf<int8_t, 16>;
using Bytes = VectorOf<uint8_t, 16>;

[[gnu::always_inline]] inline float half_at(const uint8_t* bytes) {
  return widen(Half{static_cast<uint16_t>(bytes[0] | bytes[1] << 8)});
}
[[gnu::always_inline]] inline Bytes bytes_at(const uint8_t* from) {
  Bytes bytes;
  __builtin_memcpy(&bytes, from, 16);
  return bytes;
}
[[gnu::always_inline]] inline Bytes nibbles_at(const uint8_t* from, bool high) {
  return high ? bytes_at(from) >> 4 : bytes_at(from) & 15;
}

// Computes quant * scale + least for 16 quants, the first of them number `at` of the block, and
// calls emit(number, vector) for each vector of results.
template <int vector_bytes, class Emit>
[[gnu::always_inline]] inline void put(Quants quants, float scale, float least, int at,
                                       const Emit& emit) {
  using Vector = VectorOf<float, vector_bytes>;
  constexpr int lanes = vector_bytes / 4;
#if !defined(__clang__)
  // GCC 12 needs its builtins to widen in one instruction.
  [[maybe_unused]] const auto chars = reinterpret_cast<VectorOf<char, 16>>(quants);
  if constexpr (vector_bytes == 64) {
    const auto wide =
        __builtin_ia32_pmovsxbd512_mask(chars, VectorOf<int32_t, 64>{}, static_cast<uint16_t>(-1));
    emit(at, __builtin_convertvector(wide, Vector) * scale + least);
    return;
  }
  if constexpr (vector_bytes == 32) {
    const auto upper = __builtin_shufflevector(chars, chars, 8, 9, 10, 11, 12, 13, 14, 15, 8, 9, 10,
                                               11, 12, 13, 14, 15);
    const auto low = __builtin_ia32_pmovsxbd256(chars);
    const auto high = __builtin_ia32_pmovsxbd256(upper);
    emit(at, __builtin_convertvector(low, Vector) * scale + least);
    emit(at + lanes, __builtin_convertvector(high, Vector) * scale + least);
    return;
  }
#endif
  for (int part = 0; part < 16; part += lanes) {
    Vector wide;
    for (int i = 0; i < lanes; ++i) wide[i] = static_cast<float>(quants[part + i]);
    emit(at + part, wide * scale + least);
  }
}

template <int vector_bytes>
struct Q8 {
  static constexpr int numbers = 32, bytes = 34;
  template <class Emit>
  [[gnu::always_inline]] static inline void decode(const uint8_t* block, const Emit& emit) {
    const float d = half_at(block);
    put<vector_bytes>(reinterpret_cast<Quants>(bytes_at(block + 2)), d, 0, 0, emit);
    put<vector_bytes>(reinterpret_cast<Quants>(bytes_at(block + 18)), d, 0, 16, emit);
  }
};
// Small decodes Q4_0, Q4_1, Q5_0 and Q5_1.
template <int vector_bytes, int bits, bool has_least>
struct Small {
  static constexpr int fifths = has_least ? 4 : 2, nibbles = fifths + (bits == 5 ? 4 : 0);
  static constexpr int numbers = 32, bytes = nibbles + 16;

  // Returns 16 where a bit of two bytes is set.
  [[gnu::always_inline]] static inline Bytes sixteens(const uint8_t* from) {
    Bytes both{};
    __builtin_memcpy(&both, from, 2);
    const Bytes spread =
        __builtin_shufflevector(both, both, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
    const Bytes bit = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
    return reinterpret_cast<Bytes>((spread & bit) != 0) & 16;
  }
  template <class Emit>
  [[gnu::always_inline]] static inline void decode(const uint8_t* block, const Emit& emit) {
    const float d = half_at(block);
    const float least = has_least ? half_at(block + 2) : -d * (1 << (bits - 1));
    for (int part = 0; part < 2; ++part) {
      Bytes quants = nibbles_at(block + nibbles, part == 1);
      if constexpr (bits == 5) quants |= sixteens(block + fifths + 2 * part);
      put<vector_bytes>(reinterpret_cast<Quants>(quants), d, least, part * 16, emit);
    }
  }
};
// Lines decodes Q4_K and Q5_K, whose eight groups of 32 numbers have a scale and a minimum of 6
// bits each.
template <int vector_bytes, int bits>
struct Lines {
  static constexpr int numbers = 256, fifths = 16, nibbles = fifths + (bits == 5 ? 32 : 0);
  static constexpr int bytes = nibbles + 128;
  template <class Emit>
  [[gnu::always_inline]] static inline void decode(const uint8_t* block, const Emit& emit) {
    const float d = half_at(block), m = half_at(block + 2);
    const uint8_t* packed = block + 4;
    unrolled<8>([&](auto number) __attribute__((always_inline)) {
      constexpr int group = number;
      const int last = group < 4 ? 0 : packed[group + 4];
      const int s = group < 4 ? packed[group] & 63 : (last & 15) | packed[group - 4] >> 6 << 4;
      const int t = group < 4 ? packed[group + 4] & 63 : last >> 4 | packed[group] >> 6 << 4;
      const float scale = d * static_cast<float>(s), least = -m * static_cast<float>(t);
      for (int part = 0; part < 2; ++part) {
        Bytes quants = nibbles_at(block + nibbles + group / 2 * 32 + part * 16, group % 2 == 1);
        if constexpr (bits == 5) quants |= (bytes_at(block + fifths + part * 16) >> group & 1) << 4;
        put<vector_bytes>(reinterpret_cast<Quants>(quants), scale, least, group * 32 + part * 16,
                          emit);
      }
    });
  }
};
// Sixes decodes Q6_K, which has 16 groups of 16 numbers; each half of a block has its upper bits in
// bytes of its own.
template <int vector_bytes>
struct Sixes {
  static constexpr int numbers = 256, bytes = 210;
  template <class Emit>
  [[gnu::always_inline]] static inline void decode(const uint8_t* block, const Emit& emit) {
    const float d = half_at(block + 208);
    const auto* scales = reinterpret_cast<const int8_t*>(block + 192);
    unrolled<16>([&](auto number) __attribute__((always_inline)) {
      constexpr int group = number;
      constexpr int half = group / 8, place = group % 8 / 2, part = group % 2 * 16;
      const Bytes low = nibbles_at(block + half * 64 + place % 2 * 32 + part, place / 2 == 1);
      const Bytes upper = bytes_at(block + 128 + half * 32 + part) >> place * 2 & 3;
      const float scale = d * static_cast<float>(scales[group]);
      put<vector_bytes>(reinterpret_cast<Quants>(low | upper << 4), scale, -32 * scale, group * 16,
                        emit);
    });
  }
};

// ---- the product

// Call holds the operands of one call: x is float32, dense.
struct Call {
  int64_t m, n, k;
  const BlockFormat* format;
  const float* x;
  const uint8_t* w;
  std::byte* result;  // [m, n]
  DType dtype;        // type of the result
};

// Part is the piece of the matrix that is decoded at a time: a group of columns, over a range of k.
struct Part {
  int64_t columns, range;

  Part(int64_t m, int64_t k, int64_t tile_columns) : columns(tile_columns), range(k) {
    if (m <= few_rows)
      range = std::min(k, range_of_few);
    else
      columns *= std::max<int64_t>(1, group_bytes / (tile_columns * k * int64_t{sizeof(float)}));
  }
  // Returns one thread's floats of scratch: decoded columns, and the sums that are carried from one
  // range of k to the next.
  int64_t floats(int64_t m, int64_t k) const {
    const int64_t spilled = range < k ? round_up(m, tile_rows) * columns * widest_lanes : 0;
    return columns * range + spilled;
  }
};

template <int vector_bytes>
struct Blocks {
  using Vector = VectorOf<float, vector_bytes>;
  static constexpr int lanes = vector_bytes / 4;
  static constexpr int tile_columns = vector_bytes == 64 ? 6 : 3;

  [[gnu::always_inline]] static inline float total(const Vector& x) {
    float sums[lanes];
    for (int i = 0; i < lanes; ++i) sums[i] = x[i];
    for (int width = lanes / 2; width > 0; width /= 2)
      for (int i = 0; i < width; ++i) sums[i] += sums[i + width];
    return sums[0];
  }

  // Calls body.operator()<Format>() with the decoder of a format.
  template <class Body>
  [[gnu::always_inline]] static inline void with_format(const BlockFormat& format,
                                                        const Body& body) {
    switch (format.layout) {
      case BlockLayout::bytes:
        return body.template operator()<Q8<vector_bytes>>();
      case BlockLayout::nibbles:
        if (format.bits == 4 && !format.has_least)
          return body.template operator()<Small<vector_bytes, 4, false>>();
        if (format.bits == 4) return body.template operator()<Small<vector_bytes, 4, true>>();
        if (!format.has_least) return body.template operator()<Small<vector_bytes, 5, false>>();
        return body.template operator()<Small<vector_bytes, 5, true>>();
      case BlockLayout::lines:
        if (format.bits == 4) return body.template operator()<Lines<vector_bytes, 4>>();
        return body.template operator()<Lines<vector_bytes, 5>>();
      case BlockLayout::sixes:
        return body.template operator()<Sixes<vector_bytes>>();
    }
  }

  // Decodes blocks into scratch.
  [[gnu::always_inline]] static inline void decode(const BlockFormat& format, const uint8_t* from,
                                                   int64_t count, float* to) {
    with_format(format, [&]<class Format>() __attribute__((always_inline)) {
      for (int64_t i = 0; i < count; ++i)
        Format::decode(from + i * Format::bytes,
                       [&](int at, Vector numbers) __attribute__((always_inline)) {
                         *reinterpret_cast<Vector*>(to + i * Format::numbers + at) = numbers;
                       });
    });
  }

  // Computes the columns [begin, end) from blocks that are decoded in registers, for up to `rows`
  // rows.
  template <int rows>
  [[gnu::always_inline]] static inline void stream(const Call& call, int64_t begin, int64_t end) {
    constexpr int64_t ahead = 1024;  // bytes
    with_format(*call.format, [&]<class Format>() __attribute__((always_inline)) {
      const int64_t blocks = call.k / Format::numbers;
      for (int64_t column = begin; column < end; ++column) {
        const uint8_t* w = call.w + column * blocks * Format::bytes;
        Vector sums[rows] = {};
        for (int64_t block = 0; block < blocks; ++block, w += Format::bytes) {
          const float* x = call.x + block * Format::numbers;
          for (int line = 0; line < Format::bytes; line += 64)
            __builtin_prefetch(w + ahead + line, 0, 2);
          Format::decode(w, [&](int at, Vector numbers) __attribute__((always_inline)) {
            unrolled<rows>([&](auto i) __attribute__((always_inline)) {
              sums[i] += numbers * *reinterpret_cast<const Vector*>(x + i * call.k + at);
            });
          });
        }
        for (int64_t i = 0; i < std::min<int64_t>(rows, call.m); ++i)
          write(call, i, column, total(sums[i]));
      }
    });
  }

  // Adds the products of `rows` rows of x and all columns of a tile over a range of k to the sums.
  template <int rows>
  [[gnu::always_inline]] static inline void multiply(const float* x, int64_t x_row, const float* w,
                                                     int64_t w_row, int64_t range, Vector* sums) {
    Vector all[rows * tile_columns];
    unrolled<rows * tile_columns>([&](auto i) __attribute__((always_inline)) { all[i] = sums[i]; });
    for (int64_t k = 0; k < range; k += lanes) {
      Vector right[tile_columns];
      unrolled<tile_columns>([&](auto j) __attribute__((always_inline)) {
        right[j] = *reinterpret_cast<const Vector*>(w + j * w_row + k);
      });
      unrolled<rows>([&](auto i) __attribute__((always_inline)) {
        const Vector left = *reinterpret_cast<const Vector*>(x + i * x_row + k);
        unrolled<tile_columns>([&](auto j) __attribute__((always_inline)) {
          all[i * tile_columns + j] += left * right[j];
        });
      });
    }
    unrolled<rows * tile_columns>([&](auto i) __attribute__((always_inline)) { sums[i] = all[i]; });
  }

  [[gnu::always_inline]] static inline void add(const Call& call, int64_t row, int64_t rows,
                                                int64_t from, const float* w, int64_t w_row,
                                                int64_t range, Vector* sums) {
    const float* x = call.x + row * call.k + from;
    if (rows == 4) return multiply<4>(x, call.k, w, w_row, range, sums);
    for (int64_t i = 0; i < rows; ++i)
      multiply<1>(x + i * call.k, call.k, w, w_row, range, sums + i * tile_columns);
  }

  [[gnu::always_inline]] static inline void write(const Call& call, int64_t row, int64_t column,
                                                  float sum) {
    write_sum(call.result, call.dtype, row * call.n + column, sum);
  }

  // Computes the groups [begin, end).
  [[gnu::always_inline]] static inline void run(const Call* all, float* scratch, int64_t begin,
                                                int64_t end) {
    const Call& call = *all;
    const Part part(call.m, call.k, tile_columns);
    if (call.m <= streamed_rows) {
      const int64_t first = begin * part.columns, last = std::min(call.n, end * part.columns);
      if (call.m == 1) return stream<1>(call, first, last);
      return stream<streamed_rows>(call, first, last);
    }
    const BlockFormat& format = *call.format;
    const int64_t w_row = call.k / format.numbers * format.bytes;
    auto* spilled = reinterpret_cast<Vector*>(scratch + part.columns * part.range);
    for (int64_t group = begin; group < end; ++group) {
      const int64_t first = group * part.columns;
      for (int64_t from = 0; from < call.k; from += part.range) {
        const int64_t range = std::min(part.range, call.k - from);
        for (int64_t j = 0; j < part.columns; ++j) {  // after the last column, decodes it again
          const int64_t column = std::min(first + j, call.n - 1);
          decode(format, call.w + column * w_row + from / format.numbers * format.bytes,
                 range / format.numbers, scratch + j * part.range);
        }
        for (int64_t row = 0; row < call.m; row += tile_rows) {
          const int64_t rows = std::min(tile_rows, call.m - row);
          for (int64_t j = 0; j < part.columns && first + j < call.n; j += tile_columns) {
            Vector own[tile_rows * tile_columns] = {};
            Vector* sums = part.range < call.k ? spilled + row * tile_columns : own;
            if (part.range < call.k && from == 0)
              for (int64_t i = 0; i < rows * tile_columns; ++i) sums[i] = Vector{};
            add(call, row, rows, from, scratch + j * part.range, part.range, range, sums);
            if (from + range < call.k) continue;
            const int64_t columns = std::min<int64_t>(tile_columns, call.n - first - j);
            for (int64_t at = 0; at < rows * tile_columns; ++at)
              if (at % tile_columns < columns)
                write(call, row + at / tile_columns, first + j + at % tile_columns,
                      total(sums[at]));
          }
        }
      }
    }
  }
};

using Runner = void (*)(const Call*, float*, int64_t, int64_t);
struct Variant {
  Runner run;
  int64_t tile_columns;
};
Variant variant() {
  constexpr auto of = []<int bytes>(Runner run) {
    return Variant{run, Blocks<bytes>::tile_columns};
  };
  return best_of(
      of.template operator()<64>(run_avx512<Blocks<64>, const Call*, float*, int64_t, int64_t>),
      of.template operator()<32>(run_avx2<Blocks<32>, const Call*, float*, int64_t, int64_t>),
      of.template operator()<16>(run_baseline<Blocks<16>, const Call*, float*, int64_t, int64_t>));
}

struct Extents : BlockExtents {
  using BlockExtents::BlockExtents;
  // Scratch holds x as floats, then own_floats() for each thread. A group of a grouped product may
  // have few rows where m is large, so own_floats() is the larger of both cases.
  int64_t x_floats() const { return round_up(round_up(m, tile_rows) * k, widest_lanes); }
  int64_t own_floats() const {
    const auto floats = [&](int64_t rows) {
      return Part(rows, k, variant().tile_columns).floats(rows, k);
    };
    return round_up(std::max(floats(m), floats(std::min(m, few_rows))), widest_lanes);
  }
  size_t workspace(int threads) const {
    return static_cast<size_t>(x_floats() + threads * own_floats()) * sizeof(float);
  }
};

class BlockMatmul : public BlockProduct<Extents> {
 public:
  using BlockProduct::BlockProduct;

 private:
  void multiply(const std::byte* rows, int64_t m, const std::byte* w, std::byte* to,
                void* workspace) const override {
    const int64_t n = extents_.n, k = extents_.k;
    auto* x = static_cast<float*>(workspace);
    with_float(dtype(), [&](auto element, auto) {
      using Element = decltype(element);
      const auto* from = reinterpret_cast<const Element*>(rows);
      for (int64_t i = 0; i < m * k; ++i) x[i] = to_lane<float>(from[i]);
    });
    std::fill(x + m * k, x + round_up(m, tile_rows) * k, 0.0F);
    const Call call{m, n, k, format_, x, reinterpret_cast<const uint8_t*>(w), to, dtype()};
    const int64_t columns = Part(m, k, variant_.tile_columns).columns;
    const int64_t groups = ceil_div(n, columns);
    const auto parts = std::min<int64_t>(threads_, groups);
    float* scratch = x + extents_.x_floats();
    parallel_for(parts, [&](int64_t begin, int64_t end) {
      for (int64_t part = begin; part < end; ++part)
        variant_.run(&call, scratch + part * extents_.own_floats(), groups * part / parts,
                     groups * (part + 1) / parts);
    });
  }

  Variant variant_ = variant();
};
}  // namespace

std::optional<KernelChoice> choose_matmul_blocks(const Node& node, std::span<const Placement>) {
  return choose_block_product<Extents>(node);
}
std::unique_ptr<Kernel> compile_matmul_blocks(const Launch& launch) {
  return std::make_unique<BlockMatmul>(launch);
}

}  // namespace weft::cpu
