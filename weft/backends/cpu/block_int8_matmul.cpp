// Computes the product of rows, rounded to int8, by a matrix in blocks (weft/base/block_format.h).
// A tile is as many columns as a vector has lanes: its quants are transposed to [k / 4, lane, 4] in
// the first-level cache, a range of k at a time, so that one instruction multiplies four neighbours
// of k in each lane, and all rows use them. The rows are rounded once for all threads. In a product
// of one row, as in decoding, quants are used as they are transposed, or, with AVX2, sums of
// products are transposed instead, which are fewer.
//
// Sums of integers are exact, and those of groups of them are in the order of k: results have the
// same bits on every instruction set, in any number of rows and threads.
//
// This is one file, as each instruction set compiles all products into one function.
#include <algorithm>
#include <bit>
#include <utility>

#include "weft/backends/cpu/kernels.h"
#include "weft/base/block_format.h"
#include "weft/base/parallel.h"
#include "weft/base/rounding.h"

#if !defined(__clang__)
// GCC joins loads of scalars that are broadcast, which takes an instruction for each lane.
#pragma GCC optimize("O3", "no-tree-slp-vectorize")
#endif
#pragma GCC diagnostic ignored "-Wpsabi"  // wide vectors never cross a call
#include "weft/backends/cpu/block_packers.h"
#include "weft/backends/cpu/int8_rows.h"
#include "weft/base/isa_dispatch.h"

namespace weft::cpu {
namespace {
using namespace int8;

constexpr int64_t heads_at_a_time = 2;  // blocks

template <int vector_bytes>
constexpr int most_rows = vector_bytes == 64 ? 8 : 4;  // at a time, by registers

// Call holds the operands of one call.
struct Call {
  int64_t m, n, k;
  const BlockFormat* format;
  Rows rows;
  const uint8_t* w;
  std::byte* result;  // [m, n]
  DType dtype;        // type of the result
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
  // Prefetches a cache line of each column. Prefetches of a whole range at once would delay each
  // other and the products.
  [[gnu::always_inline]] static inline void prefetch(const uint8_t* line, int64_t stride) {
#pragma GCC unroll 16
    for (int64_t column = 0; column < lanes; ++column)
      __builtin_prefetch(line + column * stride, 0, 3);
  }
  // Prefetches the cache lines of the next range, which begins at `next`, that are as far into it
  // as block `block` is into this one: each line is prefetched once, and all are spread evenly.
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
    const int64_t blocks = count / Format::numbers;
    read_heads<Format>(tile, from, stride, 0, blocks);
    for (int64_t block = 0; block < blocks; ++block) {
      prefetch_beside<Format>(next, block, stride);
      Format::scale(tile, block, from + block * Format::bytes, stride);
      Format::quants(from + block * Format::bytes, stride,
                     [&](int i, typename T::Words quants) __attribute__((always_inline)) {
                       tile.quants[block * words + i] = Format::template plus<added>(quants);
                     });
    }
  }

  // OneRow is the only row of a product, from its number `from` on.
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
  // Adds the products of the only row and the quants of each column in the order of its blocks:
  // only sums are transposed.
  template <class Format>
  [[gnu::always_inline]] static inline void stream(T& tile, const Call& call, const uint8_t* w,
                                                   int64_t stride, int64_t from, int64_t count,
                                                   const uint8_t* next, Vector& sums) {
    constexpr int group = Format::group, pieces = Format::numbers / 32;
    const OneRow<Format> only(call.rows, from);
    // Addresses of eight columns are sums of few registers.
    const int64_t after = 4 * stride, thrice = 3 * stride;
    const int64_t blocks = count / Format::numbers;
    read_heads<Format>(tile, w, stride, 0, blocks);
    Vector all = sums;
    for (int64_t block = 0; block < blocks; ++block, w += Format::bytes) {
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
      if constexpr (vector_bytes >= 32) {
        if (call.m == 1) {
          if constexpr (dot == Dot::vnni)
            multiply_packed<Format>(tile, call, blocks, stride, from, count, next, sums[0]);
          else
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
  // Returns the bytes of scratch: the rounded rows, then a tile and its sums for each thread.
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
    round_rows(x, dtype(), m, k, format_->layout == BlockLayout::sixes ? 16 : 32,
               variant_.most_rows, rows);
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
