// This is one file because the loops are inlined into one function for each instruction set and
// element type, all of it below this file's #pragma about optimization.
#include "weft/backends/cpu/gemm/skinny_matmul.h"

#include <algorithm>
#include <utility>

#include "weft/backends/cpu/simd/elements.h"
#include "weft/base/host/parallel.h"

// A multiply-add is one operation of this product, so it may be contracted to one instruction.
#if defined(__clang__)
#pragma clang fp contract(fast)
#else
#pragma GCC optimize("O3", "fp-contract=fast")
#endif
#include "weft/backends/cpu/rows/transpose.h"
#include "weft/backends/cpu/simd/vector_elements.h"
#include "weft/base/host/isa_dispatch.h"
#include "weft/base/memory/alignment.h"
#include "weft/base/numbers/rounding.h"

namespace weft::cpu {
namespace {

// Call holds the operands of one call. Strides are in elements.
struct Call {
  int64_t m, n, k;
  const void* a;       // packed by Pack
  int64_t a_rows;      // m rounded up to whole tiles; added rows copy the last row
  const void* b;       // [k, n]
  int64_t b_stride;    // between columns for dot products, else between rows
  float* sums;         // [m, n], which is the result itself where that is float32
  int64_t sums_row;    // stride between rows
  void* result;        // [m, n]
  int64_t result_row;  // stride between rows

  // With up to four rows, the arithmetic takes less time than reading b.
  bool is_memory_bound() const { return m <= 4; }
};

// For dot products, rows of a are padded with zeros to whole cache lines. Their stride spreads the
// ranges of 16 rows, 24 lines each (24 KiB), evenly over the sets of a 4 KiB way of L1.
constexpr int64_t line_bytes = 64, range_lines = 24, way_lines = 64;
int64_t dots_stride(int64_t k, int64_t element) {
  const int64_t lines = ceil_div(k * element, line_bytes);
  return (round_up(std::max<int64_t>(0, lines - range_lines), way_lines) + range_lines) *
         (line_bytes / element);
}

// AVX512-BF16 multiplies pairs of bfloat16 numbers and adds both products to one float32 sum.
template <class Body, class... Args>
[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,fma,f16c")]] void run_avx512_bf16(
    Args... args) {
  Body::run(args...);
}
#if defined(__clang__)
// Clang inlines this function after its caller was inlined into run_avx512_bf16().
[[gnu::target("avx512f,avx512bf16")]] inline void add_pairs(VectorOf<float, 64>& sum,
                                                            const VectorOf<float, 64>& a,
                                                            const VectorOf<float, 64>& b) {
  using Pairs [[gnu::vector_size(64)]] = __bf16;
  sum = __builtin_ia32_dpbf16ps_512(sum, reinterpret_cast<const Pairs&>(a),
                                    reinterpret_cast<const Pairs&>(b));
}
#else
[[gnu::always_inline]] inline void add_pairs(VectorOf<float, 64>& sum, const VectorOf<float, 64>& a,
                                             const VectorOf<float, 64>& b) {
#if __GNUC__ >= 13
  using Pairs [[gnu::vector_size(64)]] = __bf16;
#else
  using Pairs [[gnu::vector_size(64)]] = int16_t;
#endif
  sum = __builtin_ia32_dpbf16ps_v16sf(sum, reinterpret_cast<Pairs>(a), reinterpret_cast<Pairs>(b));
}
#endif

// Lines are the cache lines of `rows` rows, which are prefetched one at a time in the order of
// memory, row after row, as the hardware prefetcher does, too.
struct Lines {
  const std::byte *at = nullptr, *row = nullptr;
  int64_t stride = 0;  // bytes between rows
  int64_t per_row = 0, in_row = 0, left = 0;

  Lines() = default;
  template <class Element>
  [[gnu::always_inline]] Lines(const Element* first, int64_t rows, int64_t columns,
                               int64_t row_stride)
      : at(reinterpret_cast<const std::byte*>(first)),
        row(at),
        stride(row_stride * static_cast<int64_t>(sizeof(Element))),
        per_row(ceil_div(columns * static_cast<int64_t>(sizeof(Element)), line_bytes)),
        left(rows * per_row) {}
  [[gnu::always_inline]] void prefetch() {
    if (left == 0) return;
    --left;
    __builtin_prefetch(at, 0, 2);
    at += line_bytes;
    if (++in_row < per_row) return;
    in_row = 0;
    at = row += stride;
  }
};

// Without this, GCC loads `vector` from memory again for each instruction that uses it.
template <int bytes>
[[gnu::always_inline]] inline void keep_in_register(
    [[maybe_unused]] VectorOf<float, bytes>& vector) {
#if !defined(__clang__)
  asm("" : "+v"(vector));
#endif
}

template <bool pairs, int bytes>
[[gnu::always_inline]] inline void multiply_add(VectorOf<float, bytes>& sum,
                                                const VectorOf<float, bytes>& a,
                                                const VectorOf<float, bytes>& b) {
  if constexpr (pairs)
    add_pairs(sum, a, b);
  else
    sum += a * b;
}

// Each span of `span` lanes of x, and then of y, has the terms of one sum. Adds the two halves of
// each span.
template <int span, class Vector, int... lane>
[[gnu::always_inline]] inline Vector folded(Vector x, Vector y,
                                            std::integer_sequence<int, lane...>) {
  constexpr int half = span / 2;
  return __builtin_shufflevector(x, y, (lane / half * span + lane % half)...) +
         __builtin_shufflevector(x, y, (lane / half * span + lane % half + half)...);
}
// Sums the lanes of each vector by halves; lane i of the result is the sum of vector i.
template <int bytes, int count, int span = bytes / 4>
[[gnu::always_inline]] inline VectorOf<float, bytes> totals(
    const VectorOf<float, bytes> (&vectors)[count]) {
  if constexpr (span == 1) {
    return vectors[0];
  } else {
    VectorOf<float, bytes> next[(count + 1) / 2];
#pragma GCC unroll 4
    for (int i = 0; i < (count + 1) / 2; ++i)
      next[i] = folded<span>(vectors[2 * i], vectors[count == 1 ? 0 : 2 * i + 1],
                             std::make_integer_sequence<int, bytes / 4>());
    return totals<bytes, (count + 1) / 2, span / 2>(next);
  }
}

// ---- contiguous columns of b: dot products

// A tile is the product of `rows` rows by `columns` columns. Products that are bound by arithmetic
// sum a range of k at a time for a group of columns, so that this range of a stays in L1. Tiles
// that exceed m or the columns of a thread compute their last row or column repeatedly.
template <class Element, int bytes, bool pairs>
struct Dots {
  using Vector = VectorOf<float, bytes>;
  using Left = std::conditional_t<pairs, BFloat16, float>;
  static constexpr int lanes = bytes / static_cast<int>(sizeof(Left));  // steps of k in a vector
  static constexpr int64_t group = 24;  // columns, a multiple of any tile's

  static constexpr int64_t tile_rows(int64_t m) {
    return m == 1 ? 1 : bytes < 64 || m <= 4 || (m > 8 && m <= 12) ? 4 : 8;
  }
  static constexpr int64_t padded_rows(int64_t m) { return round_up(m, tile_rows(m)); }

  struct Range {
    int64_t from, until;  // a range of k; `from` is a multiple of `lanes`
    int64_t lines;        // lines to prefetch per line of a column, in the order of memory
    int64_t ahead;        // if not 0: prefetch distance in elements, in place of `lines`
  };

  [[gnu::always_inline]] static inline Lines lines_of(const Call& call, int64_t k, int64_t depth,
                                                      int64_t column, int64_t columns) {
    return Lines(static_cast<const Element*>(call.b) + column * call.b_stride + k, columns, depth,
                 call.b_stride);
  }

  [[gnu::always_inline]] static inline Vector load_right(const Element* from) {
    if constexpr (pairs)  // elements are aligned to two bytes, lanes to four
      return reinterpret_cast<Vector>(*reinterpret_cast<const VectorOf<int16_t, bytes>*>(from));
    else
      return load<Element, bytes>(from);
  }

  // Adds the products of a tile over one range of k. `spilled` has the tile's sums between two
  // ranges, one vector for each.
  template <int rows, int columns>
  [[gnu::always_inline]] static inline void tile(const Call& call, int64_t row, int64_t column,
                                                 int64_t end, const Range& range, Vector* spilled,
                                                 Lines& next) {
    const int64_t a_row = dots_stride(call.k, sizeof(Left));
    const Left* a = static_cast<const Left*>(call.a) + row * a_row + range.from;
    const Element* b[columns];
#pragma GCC unroll 8
    for (int j = 0; j < columns; ++j)
      b[j] = static_cast<const Element*>(call.b) + std::min(column + j, end - 1) * call.b_stride +
             range.from;
    Vector sums[rows][columns];
#pragma GCC unroll 8
    for (int i = 0; i < rows; ++i)
#pragma GCC unroll 8
      for (int j = 0; j < columns; ++j)
        sums[i][j] = range.from == 0 ? Vector{} : spilled[i * columns + j];

    // The elements after the last whole vector are read from a copy that ends in zeros.
    const int64_t depth = range.until - range.from, rest = depth % lanes;
    alignas(bytes) Element padded[columns][lanes];
    int64_t left = depth - rest;
    for (bool last = rest == 0;; last = true) {
      for (int64_t k = 0; k < left; k += lanes) {
        constexpr int line = line_bytes / sizeof(Element);
        if (k % line == 0) {
          if (range.ahead != 0) {
            __builtin_prefetch(b[0] + k + range.ahead, 0, 2);
          } else {
            for (int64_t j = 0; j < range.lines; ++j) next.prefetch();
          }
        }
        Vector right[columns];
#pragma GCC unroll 8
        for (int j = 0; j < columns; ++j) right[j] = load_right(b[j] + k);
#pragma GCC unroll 8
        for (int i = 0; i < rows; ++i) {
          Vector factor = *reinterpret_cast<const Vector*>(a + i * a_row + k);
          keep_in_register<bytes>(factor);
#pragma GCC unroll 8
          for (int j = 0; j < columns; ++j)
            multiply_add<pairs, bytes>(sums[i][j], factor, right[j]);
        }
      }
      if (last) break;
      for (int j = 0; j < columns; ++j) {
        for (int64_t k = 0; k < lanes; ++k) padded[j][k] = k < rest ? b[j][left + k] : Element{};
        b[j] = padded[j];
      }
      a += left;
      left = lanes;
    }
    if (range.until < call.k) {
#pragma GCC unroll 8
      for (int i = 0; i < rows; ++i)
#pragma GCC unroll 8
        for (int j = 0; j < columns; ++j) spilled[i * columns + j] = sums[i][j];
      return;
    }
#pragma GCC unroll 8
    for (int j = 0; j < columns; ++j) {
      Vector column_sums[rows];
#pragma GCC unroll 8
      for (int i = 0; i < rows; ++i) column_sums[i] = sums[i][j];
      const Vector all = totals<bytes>(column_sums);
      float* out = call.sums + std::min(column + j, end - 1);
#pragma GCC unroll 8
      for (int i = 0; i < rows; ++i) out[std::min(row + i, call.m - 1) * call.sums_row] = all[i];
    }
  }

  template <int rows, int columns>
  [[gnu::always_inline]] static inline void tiles(const Call& call, int64_t begin, int64_t end) {
    static_assert(group % columns == 0);
    Vector spilled[group * (most_skinny_rows + rows - 1)];
    // Products that are bound by memory read one column after the other, in the order of memory.
    constexpr int64_t ahead_bytes = 4096;
    const int64_t ahead = columns > 1 ? 0
                                      : round_up<int64_t>(ahead_bytes / sizeof(Element),
                                                          std::max<int64_t>(1, call.b_stride));
    const int64_t depth =
        columns == 1 ? call.k
                     : (int64_t{24} << 10) / (call.a_rows * int64_t{sizeof(Left)}) / lanes * lanes;
    for (int64_t first = begin; first < end; first += group) {
      const int64_t last = std::min(end, first + group);
      for (int64_t from = 0; from < call.k; from += depth) {
        const Range range{.from = from,
                          .until = std::min(call.k, from + depth),
                          .lines = ceil_div(int64_t{columns} * rows, call.a_rows),
                          .ahead = ahead};
        Lines next;
        if (range.until < call.k)
          next = lines_of(call, range.until, std::min(depth, call.k - range.until), first,
                          last - first);
        else if (last < end)
          next = lines_of(call, 0, std::min(depth, call.k), last, std::min(group, end - last));
        Vector* sums = spilled;
        for (int64_t column = first; column < last; column += columns)
          for (int64_t row = 0; row < call.m; row += rows, sums += rows * columns)
            tile<rows, columns>(call, row, column, last, range, sums, next);
      }
    }
  }

  // Computes one row, a few columns side by side, as the latency of a multiply-add exceeds the time
  // to load its operand from the last-level cache. Each sum is in the order of tile(), so that the
  // row has the bits that it has in a tile.
  [[gnu::always_inline]] static inline void one_row(const Call& call, int64_t begin, int64_t end) {
    constexpr int columns = 4;
    constexpr int64_t line = line_bytes / sizeof(Element);
    const auto* const a = static_cast<const Left*>(call.a);
    const int64_t whole = call.k / lanes * lanes;
    // The next columns are prefetched in the order of memory, unless they are more than 64 KiB
    // ahead.
    constexpr int64_t ahead = 4096 / sizeof(Element), most_in_order = (64 << 10) / sizeof(Element);
    const bool in_order = columns * call.b_stride <= most_in_order;
    for (int64_t column = begin; column < end; column += columns) {
      const Element* b[columns];
      Vector sums[columns] = {};
      for (int j = 0; j < columns; ++j)
        b[j] = static_cast<const Element*>(call.b) + std::min(column + j, end - 1) * call.b_stride;
      for (int64_t k = 0; k < whole; k += lanes) {
        if (k % line == 0) {
          const Element* const next =
              in_order ? b[0] + columns * (call.b_stride + k) : b[0] + k + ahead;
          const int64_t apart = in_order ? line : call.b_stride;
#pragma GCC unroll 4
          for (int j = 0; j < columns; ++j) __builtin_prefetch(next + j * apart, 0, 2);
        }
        const Vector factor = *reinterpret_cast<const Vector*>(a + k);
#pragma GCC unroll 4
        for (int j = 0; j < columns; ++j)
          multiply_add<pairs, bytes>(sums[j], factor, load_right(b[j] + k));
      }
      if (whole < call.k) {  // the last elements, from a copy that ends in zeros
        const Vector factor = *reinterpret_cast<const Vector*>(a + whole);
        for (int j = 0; j < columns; ++j) {
          alignas(bytes) Element padded[lanes] = {};
          std::copy(b[j] + whole, b[j] + call.k, padded);
          multiply_add<pairs, bytes>(sums[j], factor, load_right(padded));
        }
      }
      const Vector all = totals<bytes>(sums);
      for (int j = 0; j < columns; ++j) call.sums[std::min(column + j, end - 1)] = all[j];
    }
  }

  [[gnu::always_inline]] static inline void run(const Call* call, int64_t begin, int64_t end) {
    if (call->m == 1) return one_row(*call, begin, end);
    if (call->is_memory_bound()) return tiles<4, 1>(*call, begin, end);
    if constexpr (bytes == 64)
      if (tile_rows(call->m) == 8) return tiles<8, 3>(*call, begin, end);
    tiles<4, bytes == 64 ? 6 : 3>(*call, begin, end);
  }
};

// ---- contiguous rows of b: sums of multiples of its rows

// A tile adds multiples of a few rows of b, which are read side by side, to the sums of `rows`
// rows. Columns are computed in panels, whose sums stay in L2. A tile that extends beyond row m - 1
// computes that row repeatedly.
template <class Element, int bytes, bool pairs>
struct Multiples {
  using Vector = VectorOf<float, bytes>;
  using Bits = VectorOf<uint32_t, bytes>;
  using Left = std::conditional_t<pairs, uint32_t, float>;  // one row's numbers of one k, or of two
  static constexpr int lanes = bytes / 4;
  static constexpr int step = pairs ? 2 : 1;  // positions of k per iteration

  // Returns the rows of the next tile where `left` rows are left.
  static constexpr int64_t tile_rows(int64_t left) {
    if (bytes == 32) return left == 1 ? 1 : left <= 4 || left == 7 || left == 8 ? 4 : 6;
    return left == 1 ? 1 : bytes == 16 || left <= 4 ? 4 : left <= 8 ? 8 : 16;
  }
  static constexpr int64_t padded_rows(int64_t m) {
    if (m == 1) return 1;
    if (bytes == 64 && m > 16) return round_up<int64_t>(m, 16);  // all tiles have 16 rows
    int64_t rows = 0;
    while (rows < m) rows += std::max<int64_t>(4, tile_rows(m - rows));
    return rows;
  }

  struct Tile {
    int64_t row, depth;
    bool first;        // whether this is the first range of k
    int64_t fetching;  // first steps of k, which prefetch; tiles of other rows share the work
    const Element* b;  // [depth, columns of the tile]
    int64_t b_row;
    float* sums;  // [m - row, columns of the tile]
    int64_t sums_row;
  };

  [[gnu::always_inline]] static inline Lines lines_of(const Call& call, int64_t k, int64_t depth,
                                                      int64_t column, int64_t columns) {
    return Lines(static_cast<const Element*>(call.b) + k * call.b_stride + column, depth, columns,
                 call.b_stride);
  }

  template <int... lane>
  [[gnu::always_inline]] static inline Vector interleaved_rows(
      const Element* row, const Element* next, std::integer_sequence<int, lane...>) {
    using Stored = VectorOf<int16_t, bytes / 2>;
    const auto low = *reinterpret_cast<const Stored*>(row);
    const auto high = *reinterpret_cast<const Stored*>(next);
    return reinterpret_cast<Vector>(
        __builtin_shufflevector(low, high, (lane / 2 + lane % 2 * lanes)...));
  }
  [[gnu::always_inline]] static inline Vector load_right(const Element* from, int64_t row) {
    if constexpr (pairs)
      return interleaved_rows(from, from + row, std::make_integer_sequence<int, 2 * lanes>());
    else
      return load<Element, bytes>(from);
  }
  [[gnu::always_inline]] static inline void multiply_left(Vector& sum, Left a, Vector b) {
    if constexpr (pairs)
      add_pairs(sum, reinterpret_cast<Vector>(Bits{} + a), b);
    else
      sum += a * b;
  }

  template <int rows, int vectors>
  [[gnu::always_inline]] static inline void multiply(const Call& call, int64_t from,
                                                     const Tile& tile, Lines& next) {
    const Left* a = static_cast<const Left*>(call.a) + from / step * call.a_rows + tile.row;
    const Element* b = tile.b;
    constexpr int lines =
        std::max<int>(1, step * vectors * lanes * int{sizeof(Element)} / int{line_bytes});
    auto sums_of = [&](int i) __attribute__((always_inline)) {
      return tile.sums + std::min<int64_t>(i, call.m - 1 - tile.row) * tile.sums_row;
    };
    Vector sums[rows][vectors];
#pragma GCC unroll 16
    for (int i = 0; i < rows; ++i)
#pragma GCC unroll 4
      for (int j = 0; j < vectors; ++j)
        sums[i][j] =
            tile.first ? Vector{} : *reinterpret_cast<const Vector*>(sums_of(i) + j * lanes);
    for (int64_t k = 0; k < tile.depth; k += step) {
      Vector right[vectors];
#pragma GCC unroll 4
      for (int j = 0; j < vectors; ++j) right[j] = load_right(b + j * lanes, tile.b_row);

      if constexpr (rows == 1) {  // faster than prefetches in the order of memory
        constexpr int64_t soon = 8;
        for (int i = 0; i < lines; ++i)
          __builtin_prefetch(b + soon * tile.b_row + i * line_bytes / int64_t{sizeof(Element)}, 0,
                             3);
      } else if (k < tile.fetching) {
        for (int i = 0; i < lines; ++i) next.prefetch();
      }
#pragma GCC unroll 16
      for (int i = 0; i < rows; ++i)
#pragma GCC unroll 4
        for (int j = 0; j < vectors; ++j) multiply_left(sums[i][j], a[i], right[j]);
      a += call.a_rows, b += step * tile.b_row;
    }
#pragma GCC unroll 16
    for (int i = 0; i < rows; ++i)
#pragma GCC unroll 4
      for (int j = 0; j < vectors; ++j)
        *reinterpret_cast<Vector*>(sums_of(i) + j * lanes) = sums[i][j];
  }

  template <int rows, int vectors, int fewer = rows>
  [[gnu::always_inline]] static inline void tiles(const Call& call, int64_t begin, int64_t end) {
    constexpr int64_t columns = vectors * lanes;
    constexpr int64_t column_bytes = 256;  // of a range of k, for tiles of 16 rows
    constexpr int64_t panel_sums = 8192, most_depth = column_bytes / 2;
    static_assert(sizeof(Element) >= 2);
    // Rows of b that are a multiple of 4 KiB apart alias in L1. If tiles of other rows of a read
    // the same part of b again, that part is copied first.
    const bool copies = call.a_rows > rows && call.b_stride * sizeof(Element) % 4096 == 0;
    const int64_t depth = rows > 8   ? column_bytes / int64_t{sizeof(Element)}
                          : copies   ? 64
                          : rows > 4 ? 32
                                     : 16;
    const int64_t panel = panel_sums / call.m / columns * columns;
    const auto* b = static_cast<const Element*>(call.b);
    Element padded[most_depth * columns];
    float padded_sums[most_skinny_rows * columns];
    for (int64_t first = begin; first < end; first += panel)
      for (int64_t from = 0; from < call.k; from += depth) {
        const int64_t until = std::min(call.k, from + depth), last = std::min(end, first + panel);
        Lines next;
        if (until < call.k)
          next = lines_of(call, until, std::min(depth, call.k - until), first, last - first);
        else if (last < end)
          next = lines_of(call, 0, std::min(depth, call.k), last, std::min(panel, end - last));
        for (int64_t column = first; column < last; column += columns) {
          const Element* place = b + from * call.b_stride + column;
          Tile tile{.row = 0,
                    .depth = until - from,
                    .first = from == 0,
                    .fetching = ceil_div((until - from) * rows, call.a_rows),
                    .b = place,
                    .b_row = call.b_stride,
                    .sums = call.sums + column,
                    .sums_row = call.sums_row};
          // A tile that exceeds the columns or k is computed in a copy that ends in zeros.
          const int64_t present = std::min(columns, last - column);
          const bool whole = present == columns && tile.depth % step == 0;
          if (whole && copies) {
            for (int64_t k = 0; k < tile.depth; ++k)
              std::copy_n(place + k * call.b_stride, columns, padded + k * columns);
            tile.b = padded;
            tile.b_row = columns;
          } else if (!whole) {
            for (int64_t k = 0; k < round_up<int64_t>(tile.depth, step); ++k)
              for (int64_t j = 0; j < columns; ++j)
                padded[k * columns + j] =
                    k < tile.depth && j < present ? place[k * call.b_stride + j] : Element{};
            for (int64_t i = 0; i < call.m; ++i)
              for (int64_t j = 0; j < present; ++j)
                padded_sums[i * columns + j] = tile.sums[i * call.sums_row + j];
            tile.b = padded;
            tile.b_row = tile.sums_row = columns;
            tile.sums = padded_sums;
          }
          float* sums = tile.sums;
          while (tile.row < call.m) {
            tile.sums = sums + tile.row * tile.sums_row;
            if (fewer < rows && tile_rows(call.m - tile.row) <= fewer) {
              multiply<fewer, vectors>(call, from, tile, next);
              tile.row += fewer;
            } else {
              multiply<rows, vectors>(call, from, tile, next);
              tile.row += rows;
            }
          }
          if (!whole)
            for (int64_t i = 0; i < call.m; ++i)
              for (int64_t j = 0; j < present; ++j)
                call.sums[i * call.sums_row + column + j] = padded_sums[i * columns + j];
        }
      }
  }

  [[gnu::always_inline]] static inline void run(const Call* call, int64_t begin, int64_t end) {
    if (call->m == 1) return tiles<1, 4>(*call, begin, end);
    if constexpr (bytes == 64) {
      if (call->m > 8) return tiles<16, 1>(*call, begin, end);
      if (call->m > 4) return tiles<8, 2>(*call, begin, end);
    }
    if constexpr (bytes == 32)
      if (call->m > 4) return tiles<6, 2, 4>(*call, begin, end);
    tiles<4, bytes == 64 ? 4 : 2>(*call, begin, end);
  }
};

// ---- conversions

// Packs a as [rows, stride] for dot products, else as [k / step, rows, step] with zeros up to a
// whole step; rows from m on repeat row m - 1.
struct Packing {
  int64_t m, k, rows;
  int64_t stride;  // between rows for dot products, else 0
};
template <class Element, class Packed, int bytes>
struct Pack {
  using Word = std::conditional_t<sizeof(Packed) == 2, uint32_t, float>;  // one step of a row
  static constexpr int64_t lanes = bytes / 4, step = sizeof(Packed) == 2 ? 2 : 1;

  // Transposes rows in whole vectors and k in blocks of four words; returns how many rows, and
  // elements of k, are packed.
  [[gnu::always_inline]] static inline std::pair<int64_t, int64_t> transpose(
      const Element* from, const MatrixStrides* strides, const Packing* packing, Packed* to) {
    if constexpr (std::is_same_v<Element, Packed>) {
      const bool aligned =
          reinterpret_cast<uintptr_t>(from) % sizeof(Word) == 0 && strides->row % step == 0;
      if (packing->stride == 0 && strides->column == 1 && aligned) {
        const int64_t rows = packing->m / lanes * lanes, words = packing->k / step / 4 * 4;
        const int64_t row = strides->row / step;
        for (int64_t i = 0; i < rows; i += lanes)
          for (int64_t j = 0; j < words; j += 4)
            transpose_block<Word, bytes>(reinterpret_cast<const Word*>(from) + i * row + j, row,
                                         reinterpret_cast<Word*>(to) + j * packing->rows + i,
                                         packing->rows);
        return {rows, words * step};
      }
    }
    return {0, 0};
  }

  [[gnu::always_inline]] static inline void run(const void* from, const MatrixStrides* strides,
                                                const Packing* packing, Packed* to) {
    const auto [m, k, rows, stride] = *packing;
    const auto* a = static_cast<const Element*>(from);
    const int64_t column = strides->column;
    const auto [done_rows, done_k] = transpose(a, strides, packing, to);
    for (int64_t i = 0; i < rows; ++i) {
      const Element* row = a + std::min(i, m - 1) * strides->row;
      auto element = [&](int64_t j) __attribute__((always_inline)) {
        if constexpr (std::is_same_v<Element, Packed>)
          return row[j * column];
        else
          return from_lane<Packed>(to_lane<float>(row[j * column]));
      };
      const int64_t done = i < done_rows ? done_k : 0;
      if (stride != 0) {
        Packed* out = to + i * stride;
        for (int64_t j = 0; j < k; ++j) out[j] = element(j);
        for (int64_t j = k; j < round_up<int64_t>(k, line_bytes / sizeof(Packed)); ++j)
          out[j] = Packed{};
      } else {
        for (int64_t j = done; j < round_up(k, step); ++j)
          to[(j / step * rows + i) * step + j % step] = j < k ? element(j) : Packed{};
      }
    }
  }
};
template <class Element, class Packed>
auto best_pack() {
  using Packer = void (*)(const void*, const MatrixStrides*, const Packing*, Packed*);
  return best_of<Packer>(run_avx512<Pack<Element, Packed, 64>>, run_avx2<Pack<Element, Packed, 32>>,
                         run_baseline<Pack<Element, Packed, 16>>);
}
template <class Result>
struct Round {
  [[gnu::always_inline]] static inline void run(const Call* call, int64_t begin, int64_t end) {
    for (int64_t i = 0; i < call->m; ++i)
      for (int64_t j = begin; j < end; ++j)
        static_cast<Result*>(call->result)[i * call->result_row + j] =
            narrow<Result>(call->sums[i * call->sums_row + j]);
  }
};

// A ProductKernel is a product for one instruction set, whose Runner computes a range of columns.
using Runner = void (*)(const Call*, int64_t begin, int64_t end);  // for a range of columns
struct ProductKernel {
  Runner run;
  int64_t (*padded_rows)(int64_t m);
};
template <template <class, int, bool> class Product, class Element>
ProductKernel best_product(bool pairs) {
  if constexpr (std::is_same_v<Element, BFloat16>)
    if (pairs)
      return {run_avx512_bf16<Product<Element, 64, true>>, Product<Element, 64, true>::padded_rows};
  using Wide = Product<Element, 64, false>;
  using Middle = Product<Element, 32, false>;
  using Narrow = Product<Element, 16, false>;
  return best_of<ProductKernel>({run_avx512<Wide>, Wide::padded_rows},
                                {run_avx2<Middle>, Middle::padded_rows},
                                {run_baseline<Narrow>, Narrow::padded_rows});
}
template <class Result>
Runner best_round() {
  return best_of<Runner>(run_avx512<Round<Result>>, run_avx2<Round<Result>>,
                         run_baseline<Round<Result>>);
}

bool is_known(DType dtype) {
  return dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16;
}
bool by_dots(const Contraction& task) { return task.b.row == 1; }
bool sums_in_result(const Contraction& task) { return task.dtype == DType::f32; }

bool by_pairs(const Contraction& task) {
  return isa() >= Isa::avx512_bf16 && task.a_dtype == DType::bf16 && task.b_dtype == DType::bf16;
}

// Returns a bound of the bytes of the packed a: with the most added rows and the widest elements.
size_t packed_bytes(const Contraction& task) {
  const int64_t most_added_rows = task.m > 16 ? 15 : 7;
  return aligned(static_cast<size_t>((task.m + most_added_rows) * dots_stride(task.k, 4)) *
                 sizeof(float));
}
}  // namespace

bool is_skinny(const Contraction& task) {
  return task.batch.empty() && !task.accumulate && task.m > 0 && task.m <= most_skinny_rows &&
         task.n > 0 && task.k > 0 && is_known(task.a_dtype) && is_known(task.b_dtype) &&
         is_known(task.dtype) && (task.b.row == 1 || task.b.column == 1) &&
         (task.result.column == 1 || task.n == 1);
}

size_t skinny_workspace(const Contraction& task) {
  const size_t sums = static_cast<size_t>(task.m * task.n) * sizeof(float);
  return packed_bytes(task) + (sums_in_result(task) ? 0 : aligned(sums));
}

void skinny_matmul(const Contraction& task, const void* a, const void* b, void* result,
                   void* workspace, int threads) {
  auto* sums = reinterpret_cast<float*>(static_cast<std::byte*>(workspace) + packed_bytes(task));
  const bool dots = by_dots(task), in_result = sums_in_result(task), pairs = by_pairs(task);
  ProductKernel product{};
  Runner round = nullptr;
  with_float(task.b_dtype, [&]<class Element, class Lane>(Element, Lane) {
    if constexpr (std::is_same_v<Lane, float>)
      product = dots ? best_product<Dots, Element>(pairs) : best_product<Multiples, Element>(pairs);
  });
  const Call call{.m = task.m,
                  .n = task.n,
                  .k = task.k,
                  .a = workspace,
                  .a_rows = product.padded_rows(task.m),
                  .b = b,
                  .b_stride = dots ? task.b.column : task.b.row,
                  .sums = in_result ? static_cast<float*>(result) : sums,
                  .sums_row = in_result ? task.result.row : task.n,
                  .result = result,
                  .result_row = task.result.row};
  const Packing packing{.m = task.m,
                        .k = task.k,
                        .rows = call.a_rows,
                        .stride = dots ? dots_stride(task.k, pairs ? 2 : 4) : 0};
  with_float(task.a_dtype, [&]<class Element>(Element, auto) {
    if (pairs)
      best_pack<BFloat16, BFloat16>()(a, &task.a, &packing, static_cast<BFloat16*>(workspace));
    else
      best_pack<Element, float>()(a, &task.a, &packing, static_cast<float*>(workspace));
  });
  if (!in_result) round = task.dtype == DType::bf16 ? best_round<BFloat16>() : best_round<Half>();

  constexpr int64_t unit = 64;                // columns: whole tiles of any instruction set
  constexpr int64_t worth_thread = 32 << 10;  // bytes of b
  const int64_t units = ceil_div(task.n, unit);
  const int64_t bytes = task.n * task.k * static_cast<int64_t>(size_of(task.b_dtype));
  const int64_t parts =
      std::clamp<int64_t>(bytes / worth_thread, 1, std::min<int64_t>(threads, units));
  parallel_for(parts, [&](int64_t first, int64_t last) {
    const int64_t begin = units * first / parts * unit;
    const int64_t end = std::min(task.n, units * last / parts * unit);
    product.run(&call, begin, end);
    if (round != nullptr) round(&call, begin, end);
  });
}
}  // namespace weft::cpu
