// This is one file because the loops are inlined into one function for each instruction set and
// element type, all of it below this file's #pragma about optimization.
#include "weft/backends/cpu/skinny_matmul.h"

#include <algorithm>
#include <utility>

#include "weft/backends/cpu/elements.h"
#include "weft/base/parallel.h"

// A multiply-add is one operation of this product, so it may be contracted to one instruction.
#if defined(__clang__)
#pragma clang fp contract(fast)
#else
#pragma GCC optimize("O3", "fp-contract=fast")
#endif
#pragma GCC diagnostic ignored "-Wpsabi"  // wide vectors never cross a call
#include "weft/backends/cpu/transpose.h"
#include "weft/backends/cpu/vector_elements.h"
#include "weft/base/alignment.h"
#include "weft/base/isa_dispatch.h"
#include "weft/base/rounding.h"

namespace weft::cpu {
namespace {

// Call holds the operands of one call. Strides are in elements.
struct Call {
  int64_t m, n, k;
  const float* a;  // as Pack packs it
  const void* b;
  int64_t b_stride;    // between columns for dot products, else between rows
  float* sums;         // [m, n], which is the result itself where that is float32
  int64_t sums_row;    // stride between rows
  void* result;        // [m, n]
  int64_t result_row;  // stride between rows
};

// A packed row of a ends in zeros up to whole vectors of any instruction set.
constexpr int64_t line_floats = 16;

// Calls f(0), f(1), ... with constants, so that arrays which it indexes stay in registers.
template <int count, class F>
[[gnu::always_inline]] inline void unrolled(const F& f) {
  [&]<int... i>(std::integer_sequence<int, i...>) __attribute__((always_inline)) {
    (f(std::integral_constant<int, i>()), ...);
  }(std::make_integer_sequence<int, count>());
}

// Loads `count` elements, followed by zeros.
template <class Element, int bytes>
[[gnu::always_inline]] inline VectorOf<float, bytes> load_part(const Element* from, int64_t count) {
  Element part[bytes / 4] = {};
  for (int64_t i = 0; i < count; ++i) part[i] = from[i];
  return load<Element, bytes>(part);
}
// Sums the lanes by halves.
template <class Vector, int... lane>
[[gnu::always_inline]] inline auto sum_of_halves(Vector x, std::integer_sequence<int, lane...>) {
  constexpr int half = sizeof...(lane);
  return __builtin_shufflevector(x, x, lane...) + __builtin_shufflevector(x, x, (half + lane)...);
}
template <int bytes>
[[gnu::always_inline]] inline float total(const VectorOf<float, bytes>& x) {
  if constexpr (bytes == 16)
    return (x[0] + x[2]) + (x[1] + x[3]);
  else
    return total<bytes / 2>(sum_of_halves(x, std::make_integer_sequence<int, bytes / 8>()));
}

// ---- many rows: bound by arithmetic

// Computes a block of b, `depth` of k by `panel` columns, after another. A tile of a block is
// tile_vectors vectors of b side by side. All rows of a are multiplied by it, a few at a time,
// while the next tile is prefetched. The first of them copy the tile: its lines may alias in L1,
// and those who follow need not widen it again. A vector is a part of a column of b where products
// are `dots`, else of a row.
template <class Element, int bytes, bool dots>
struct Tiled {
  using Vector = VectorOf<float, bytes>;
  static constexpr int lanes = bytes / 4, line = 64 / sizeof(Element);
  static constexpr int tile_vectors = bytes < 64 ? 3 : dots ? 6 : 4;
  static constexpr int most_rows = bytes < 64 || dots ? 4 : 6;
  static constexpr int tile_columns = dots ? tile_vectors : tile_vectors * lanes;
  static constexpr int step = dots ? lanes : 1;  // of k
  // In L1 are a tile, its copy, the next tile and the rows of a; in L2, the sums of a block.
  static constexpr int64_t depth = dots ? 256 : bytes < 64 ? 96 : 48, panel = dots ? 12 : 384;
  static_assert(panel % tile_columns == 0 && depth % step == 0);

  struct Block {
    int64_t from, until;  // of k
    int64_t first, last;  // columns
  };
  struct Place {
    int64_t row, column;
    float* copied;         // [depth / step, tile_vectors, lanes], the tile
    Vector* spilled;       // the sums of dot products between two blocks
    const Element* next;   // the tile to prefetch
    int64_t next_part[2];  // elements from `next` to the lines that a step prefetches
  };

  [[gnu::always_inline]] static inline const Element* b_at(const Call& call, int64_t k,
                                                           int64_t column) {
    const int64_t across = dots ? column : k, along = dots ? k : column;
    return static_cast<const Element*>(call.b) + across * call.b_stride + along;
  }

  // Copies a tile that exceeds the block, followed by zeros.
  [[gnu::always_inline]] static inline void copy_part(const Call& call, const Block& block,
                                                      const Place& at) {
    float* to = at.copied;
    for (int64_t from = block.from; from < block.until; from += step)
      for (int j = 0; j < tile_vectors; ++j)
        for (int lane = 0; lane < lanes; ++lane) {
          const int64_t column = at.column + (dots ? j : j * lanes + lane);
          const int64_t k = dots ? from + lane : from;
          const bool present = column < block.last && k < block.until;
          *to++ = present ? to_lane<float>(*b_at(call, k, column)) : 0.0f;
        }
  }

  // Calls f(sum, result, count) with each vector of sums, where it belongs in the result, and how
  // many of its lanes the block has.
  template <int count, class F>
  [[gnu::always_inline]] static inline void each(const Call& call, const Block& block,
                                                 const Place& at, Vector* sums, const F& f) {
    float* out = call.sums + at.row * call.sums_row + at.column;
    unrolled<count>([&](auto i) __attribute__((always_inline)) {
      constexpr int j = i % tile_vectors * (dots ? 1 : lanes);
      f(sums[i], out + i / tile_vectors * call.sums_row + j, block.last - at.column - j);
    });
  }
  template <int count>
  [[gnu::always_inline]] static inline void start(const Call& call, const Block& block,
                                                  const Place& at, Vector* sums) {
    if (block.from == 0)
      unrolled<count>([&](auto i) __attribute__((always_inline)) { sums[i] = Vector{}; });
    else if (dots)
      unrolled<count>([&](auto i) __attribute__((always_inline)) { sums[i] = at.spilled[i]; });
    else if (at.column + tile_columns <= block.last)
      each<count>(call, block, at, sums,
                  [](Vector& sum, float* result, int64_t)
                      __attribute__((always_inline)) { sum = *reinterpret_cast<Vector*>(result); });
    else
      each<count>(call, block, at, sums,
                  [](Vector& sum, float* result, int64_t present) __attribute__((always_inline)) {
                    sum = load_part<float, bytes>(result, std::clamp<int64_t>(present, 0, lanes));
                  });
  }
  template <int count>
  [[gnu::always_inline]] static inline void finish(const Call& call, const Block& block,
                                                   const Place& at, Vector* sums) {
    if (dots && block.until < call.k)
      unrolled<count>([&](auto i) __attribute__((always_inline)) { at.spilled[i] = sums[i]; });
    else if (dots)
      each<count>(call, block, at, sums,
                  [](Vector& sum, float* result, int64_t present) __attribute__((always_inline)) {
                    if (present > 0) *result = total<bytes>(sum);
                  });
    else if (at.column + tile_columns <= block.last)
      each<count>(call, block, at, sums,
                  [](Vector& sum, float* result, int64_t)
                      __attribute__((always_inline)) { *reinterpret_cast<Vector*>(result) = sum; });
    else
      each<count>(call, block, at, sums,
                  [](Vector& sum, float* result, int64_t present) __attribute__((always_inline)) {
                    for (int lane = 0; lane < lanes && lane < present; ++lane)
                      result[lane] = sum[lane];
                  });
  }

  // Adds a tile's terms to the sums of `rows` rows. `copies`: it copies the tile first.
  template <int rows, bool copies>
  [[gnu::always_inline]] static inline void tile(const Call& call, const Block& block,
                                                 const Place& at) {
    const int64_t a_step = call.m * step, b_vector = dots ? call.b_stride : lanes,
                  b_step = dots ? lanes : call.b_stride;
    const float* a = call.a + block.from * call.m + at.row * step;
    const Element* b = b_at(call, block.from, at.column);
    const Element* next[] = {at.next + at.next_part[0], at.next + at.next_part[1]};
    float* copied = at.copied;
    Vector sums[rows * tile_vectors];
    start<rows * tile_vectors>(call, block, at, sums);
    auto add = [&](const auto& load_at) __attribute__((always_inline)) {
      Vector right[tile_vectors];
      unrolled<tile_vectors>([&](auto j) __attribute__((always_inline)) {
        auto* kept = reinterpret_cast<Vector*>(copied + j * lanes);
        if constexpr (copies)
          *kept = right[j] = load_at(b + j * b_vector);
        else
          right[j] = *kept;
      });
      unrolled<rows>([&](auto i) __attribute__((always_inline)) {
        unrolled<tile_vectors>([&](auto j) __attribute__((always_inline)) {
          if constexpr (dots)
            sums[i * tile_vectors + j] +=
                *reinterpret_cast<const Vector*>(a + i * lanes) * right[j];
          else
            sums[i * tile_vectors + j] += a[i] * right[j];
        });
      });
      a += a_step, b += b_step, copied += tile_vectors * lanes;
    };
    for (int64_t steps = (block.until - block.from) / step; steps > 0; --steps) {
      for (const Element*& part : next) __builtin_prefetch(part, 0, 3), part += b_step;
      add(load<Element, bytes>);
    }
    if (const int64_t rest = (block.until - block.from) % step; rest != 0)
      add([&](const Element* from)
              __attribute__((always_inline)) { return load_part<Element, bytes>(from, rest); });
    finish<rows * tile_vectors>(call, block, at, sums);
  }

  template <bool copies>
  [[gnu::always_inline]] static inline void some_rows(const Call& call, int64_t rows,
                                                      const Block& block, const Place& at) {
    constexpr int least = most_rows / 2;  // rows are divided evenly
    unrolled<most_rows - least + 1>([&](auto i) __attribute__((always_inline)) {
      if (rows == least + i) tile<least + i, copies>(call, block, at);
    });
  }

  [[gnu::always_inline]] static inline void all_rows(const Call& call, const Block& block,
                                                     Place& at) {
    const bool whole = at.column + tile_columns <= block.last;
    if (!whole) copy_part(call, block, at);
    const int64_t count = ceil_div<int64_t>(call.m, most_rows);
    for (int64_t i = 0; i < count; ++i) {
      at.row = call.m * i / count;
      // Each prefetches a column or a line of columns of the next tile, and with few rows another.
      constexpr int64_t parts = dots ? tile_vectors : ceil_div(tile_columns, line);
      const int64_t stride = dots ? call.b_stride : line;
      at.next_part[0] = std::min(i, parts - 1) * stride;
      at.next_part[1] = i + count < parts ? (i + count) * stride : at.next_part[0];
      const int64_t rows = call.m * (i + 1) / count - at.row;
      if (whole && i == 0)
        some_rows<true>(call, rows, block, at);
      else
        some_rows<false>(call, rows, block, at);
      if (dots) at.spilled += rows * tile_vectors;
    }
  }

  [[gnu::always_inline]] static inline void run(const Call* call, int64_t begin, int64_t end) {
    alignas(64) float copied[depth / step * tile_vectors * lanes];
    Vector spilled[dots ? panel * most_skinny_rows : 1];
    for (int64_t first = begin; first < end; first += panel)
      for (int64_t from = 0; from < call->k; from += depth) {
        const Block block{from, std::min(call->k, from + depth), first,
                          std::min(end, first + panel)};
        Place at{0, first, copied, spilled, nullptr, {}};
        for (; at.column < block.last; at.column += tile_columns) {
          const int64_t next = at.column + tile_columns;
          at.next = next < block.last       ? b_at(*call, from, next)
                    : block.until < call->k ? b_at(*call, block.until, first)
                    : block.last < end      ? b_at(*call, 0, block.last)
                                            : b_at(*call, from, at.column);
          all_rows(*call, block, at);
        }
      }
  }
};

// ---- few rows: bound by reading b

// Computes dot products with contiguous columns of b, a few columns at a time.
template <class Element, int bytes>
struct StreamedDots {
  using Vector = VectorOf<float, bytes>;
  static constexpr int lanes = bytes / 4, most_columns = bytes == 64 ? 6 : 3;

  template <int columns, int rows>
  [[gnu::always_inline]] static inline void tile(const Call& call, int64_t column) {
    const int64_t stride = call.b_stride, ahead = columns * stride;
    const float* a = call.a;
    const Element* b = static_cast<const Element*>(call.b) + column * stride;
    Vector sums[rows * columns] = {};
    auto add = [&](int64_t k, const auto& load_at) __attribute__((always_inline)) {
      Vector right[columns];
      unrolled<columns>(
          [&](auto j) __attribute__((always_inline)) { right[j] = load_at(b + j * stride + k); });
      unrolled<rows>([&](auto i) __attribute__((always_inline)) {
        const Vector left = *reinterpret_cast<const Vector*>(a + k * rows + i * lanes);
        unrolled<columns>([&](auto j) __attribute__((always_inline)) {
          sums[i * columns + j] += left * right[j];
        });
      });
    };
    constexpr int line = 64 / sizeof(Element);
    int64_t k = 0;
    for (; k + line <= call.k; k += line) {
      unrolled<columns>([&](auto j) __attribute__((always_inline)) {
        __builtin_prefetch(b + j * stride + k + ahead, 0, 2);
      });
      unrolled<line / lanes>(
          [&](auto i) __attribute__((always_inline)) { add(k + i * lanes, load<Element, bytes>); });
    }
    for (; k + lanes <= call.k; k += lanes) add(k, load<Element, bytes>);
    if (k < call.k)
      add(k, [&](const Element* at) __attribute__((always_inline)) {
        return load_part<Element, bytes>(at, call.k - k);
      });
    float* out = call.sums + column;
    unrolled<rows * columns>([&](auto i) __attribute__((always_inline)) {
      out[i / columns * call.sums_row + i % columns] = total<bytes>(sums[i]);
    });
  }

  template <int rows>
  [[gnu::always_inline]] static inline void run(const Call& call, int64_t begin, int64_t end) {
    int64_t column = begin;
    for (; column + most_columns <= end; column += most_columns)
      tile<most_columns, rows>(call, column);
    for (; column < end; ++column) tile<1, rows>(call, column);
  }
};

// Adds multiples of a few contiguous rows of b to the sums.
template <class Element, int bytes>
struct StreamedMultiples {
  using Vector = VectorOf<float, bytes>;
  static constexpr int lanes = bytes / 4;
  static constexpr int64_t depth = 16;  // rows that are read side by side

  // Computes `vectors` vectors of columns, or, where `present` is not 0, only so many columns of
  // one vector.
  template <int rows, int vectors>
  [[gnu::always_inline]] static inline void tile(const Call& call, int64_t column, int64_t from,
                                                 int64_t until, int64_t present) {
    const float* a = call.a + from * rows;
    const Element* b = static_cast<const Element*>(call.b) + from * call.b_stride + column;
    float* out = call.sums + column;
    auto sums_at = [&](int i) __attribute__((always_inline)) {
      return out + i / vectors * call.sums_row + i % vectors * lanes;
    };
    Vector sums[rows * vectors];
    unrolled<rows * vectors>([&](auto i) __attribute__((always_inline)) {
      sums[i] = from == 0      ? Vector{}
                : present == 0 ? *reinterpret_cast<const Vector*>(sums_at(i))
                               : load_part<float, bytes>(sums_at(i), present);
    });
    for (int64_t k = from; k < until; ++k, a += rows, b += call.b_stride) {
      Vector right[vectors];
      unrolled<vectors>([&](auto j) __attribute__((always_inline)) {
        right[j] = present == 0 ? load<Element, bytes>(b + j * lanes)
                                : load_part<Element, bytes>(b, present);
      });
      unrolled<rows * vectors>([&](auto i) __attribute__((always_inline)) {
        sums[i] += a[i / vectors] * right[i % vectors];
      });
    }
    unrolled<rows * vectors>([&](auto i) __attribute__((always_inline)) {
      if (present == 0)
        *reinterpret_cast<Vector*>(sums_at(i)) = sums[i];
      else
        for (int64_t lane = 0; lane < present; ++lane) sums_at(i)[lane] = sums[i][lane];
    });
  }

  template <int rows>
  [[gnu::always_inline]] static inline void run(const Call& call, int64_t begin, int64_t end) {
    constexpr int vectors = std::min(6, 12 / rows), columns = vectors * lanes;
    constexpr int64_t panel = 8192 / rows / columns * columns;  // their sums stay in L2
    for (int64_t first = begin; first < end; first += panel)
      for (int64_t from = 0; from < call.k; from += depth) {
        const int64_t until = std::min(call.k, from + depth), last = std::min(end, first + panel);
        int64_t column = first;
        for (; column + columns <= last; column += columns)
          tile<rows, vectors>(call, column, from, until, 0);
        for (; column + lanes <= last; column += lanes) tile<rows, 1>(call, column, from, until, 0);
        if (column < last) tile<rows, 1>(call, column, from, until, last - column);
      }
  }
};

constexpr int64_t memory_bound_rows = 4;

// Computes columns begin .. end - 1.
template <class Element, int bytes, bool dots>
struct Product {
  [[gnu::always_inline]] static inline void run(const Call* call, int64_t begin, int64_t end) {
    using Streamed =
        std::conditional_t<dots, StreamedDots<Element, bytes>, StreamedMultiples<Element, bytes>>;
    if (call->m > memory_bound_rows) return Tiled<Element, bytes, dots>::run(call, begin, end);
    unrolled<memory_bound_rows>([&](auto i) __attribute__((always_inline)) {
      if (call->m == i + 1) Streamed::template run<i + 1>(*call, begin, end);
    });
  }
};

// ---- conversions

// Packs a as [k / step, m, step], where `step` is the lanes of a vector for dot products, else 1.
template <class Element, int bytes, bool dots>
struct Pack {
  [[gnu::always_inline]] static inline void run(const void* from, const MatrixStrides* strides,
                                                int64_t m, int64_t k, float* to) {
    constexpr int64_t step = dots ? bytes / 4 : 1, group = line_floats;
    for (int64_t first = 0; first < k; first += group)
      for (int64_t i = 0; i < m; ++i) {
        const Element* row = static_cast<const Element*>(from) + i * strides->row;
        float* packed = to + first * m + i * step;
        auto place = [&](int64_t j) __attribute__((always_inline)) {
          return packed + j / step * step * m + j % step;
        };
        const int64_t count = std::min(group, k - first);
        if (strides->column == 1 && count == group)
          for (int64_t j = 0; j < group; ++j) *place(j) = to_lane<float>(row[first + j]);
        else
          for (int64_t j = 0; j < count; ++j)
            *place(j) = to_lane<float>(row[(first + j) * strides->column]);
        for (int64_t j = count; j < group; ++j) *place(j) = 0;
      }
  }
};
template <class Result>
struct Round {
  [[gnu::always_inline]] static inline void run(const Call* call, int64_t begin, int64_t end) {
    for (int64_t i = 0; i < call->m; ++i)
      for (int64_t j = begin; j < end; ++j)
        static_cast<Result*>(call->result)[i * call->result_row + j] =
            narrow<Result>(call->sums[i * call->sums_row + j]);
  }
};

using Runner = void (*)(const Call*, int64_t begin, int64_t end);  // for a range of columns
template <class Element, bool dots>
Runner best_product() {
  return best_of<Runner>(run_avx512<Product<Element, 64, dots>>,
                         run_avx2<Product<Element, 32, dots>>,
                         run_baseline<Product<Element, 16, dots>>);
}
using Packer = void (*)(const void* from, const MatrixStrides*, int64_t m, int64_t k, float* to);
template <class Element, bool dots>
Packer best_pack() {
  return best_of<Packer>(run_avx512<Pack<Element, 64, dots>>, run_avx2<Pack<Element, 32, dots>>,
                         run_baseline<Pack<Element, 16, dots>>);
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

size_t packed_bytes(const Contraction& task) {
  return aligned(static_cast<size_t>(task.m * round_up(task.k, line_floats)) * sizeof(float));
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
  auto* packed = static_cast<float*>(workspace);
  auto* sums = reinterpret_cast<float*>(static_cast<std::byte*>(workspace) + packed_bytes(task));
  const bool dots = by_dots(task), in_result = sums_in_result(task);
  const Call call{.m = task.m,
                  .n = task.n,
                  .k = task.k,
                  .a = packed,
                  .b = b,
                  .b_stride = dots ? task.b.column : task.b.row,
                  .sums = in_result ? static_cast<float*>(result) : sums,
                  .sums_row = in_result ? task.result.row : task.n,
                  .result = result,
                  .result_row = task.result.row};
  with_float(task.a_dtype, [&]<class Element>(Element, auto) {
    (dots ? best_pack<Element, true>() : best_pack<Element, false>())(a, &task.a, task.m, task.k,
                                                                      packed);
  });
  Runner run = nullptr, round = nullptr;
  with_float(task.b_dtype, [&]<class Element, class Lane>(Element, Lane) {
    if constexpr (std::is_same_v<Lane, float>)
      run = dots ? best_product<Element, true>() : best_product<Element, false>();
  });
  if (!in_result) round = task.dtype == DType::bf16 ? best_round<BFloat16>() : best_round<Half>();

  constexpr int64_t unit = 16;                // columns: whole cache lines of sums
  constexpr int64_t worth_thread = 32 << 10;  // bytes of b
  const int64_t units = ceil_div(task.n, unit);
  const int64_t bytes = task.n * task.k * static_cast<int64_t>(size_of(task.b_dtype));
  const int64_t parts =
      std::clamp<int64_t>(bytes / worth_thread, 1, std::min<int64_t>(threads, units));
  parallel_for(parts, [&](int64_t first, int64_t last) {
    const int64_t begin = units * first / parts * unit;
    const int64_t end = std::min(task.n, units * last / parts * unit);
    run(&call, begin, end);
    if (round != nullptr) round(&call, begin, end);
  });
}
}  // namespace weft::cpu
