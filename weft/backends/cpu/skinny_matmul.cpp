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
  const float* a;    // packed: [m, k] for dot products, else [k, m]
  int64_t a_stride;  // between its rows
  const void* b;
  int64_t b_stride;    // between columns for dot products, else between rows
  float* sums;         // [m, n], which is the result itself where that is float32
  int64_t sums_row;    // stride between rows
  void* result;        // [m, n]
  int64_t result_row;  // stride between rows

  // The arithmetic of so few rows takes less time than reading b.
  bool is_memory_bound() const { return m <= 4; }
};

// Packed rows end in zeros up to whole vectors of any instruction set, and in one more cache line,
// because rows that are a power of two apart alias in the cache.
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

// ---- contiguous columns of b: dot products

// A tile is the product of `rows` rows by `columns` columns. Products that are bound by arithmetic
// sum a range of k at a time for a group of columns, so that this range of a stays in L1.
template <class Element, int bytes>
struct Dots {
  using Vector = VectorOf<float, bytes>;
  static constexpr int lanes = bytes / 4;
  static constexpr int tile_columns = bytes == 64 ? 6 : 3, tile_rows = 4;
  static constexpr int64_t group = 24;  // columns, a multiple of tile_columns

  struct Range {
    int64_t from, until;  // of k; `from` is a multiple of `lanes`
    int64_t ahead;        // elements from a column of b to the one that the next tile reads there
  };

  // Adds to `spilled`, the sums of the tile between two ranges, one vector each.
  template <int columns, int rows>
  [[gnu::always_inline]] static inline void tile(const Call& call, int64_t column, int64_t row,
                                                 const Range& range, Vector* spilled) {
    const int64_t a_row = call.a_stride, b_column = call.b_stride;
    const float* a = call.a + row * a_row;
    const Element* b = static_cast<const Element*>(call.b) + column * b_column;
    Vector sums[rows * columns];
    unrolled<rows * columns>([&](auto i) __attribute__((always_inline)) {
      sums[i] = range.from == 0 ? Vector{} : spilled[i];
    });
    auto add = [&](int64_t k, const auto& load_at) __attribute__((always_inline)) {
      Vector right[columns];
      unrolled<columns>(
          [&](auto j) __attribute__((always_inline)) { right[j] = load_at(b + j * b_column + k); });
      unrolled<rows>([&](auto i) __attribute__((always_inline)) {
        const Vector left = *reinterpret_cast<const Vector*>(a + i * a_row + k);
        unrolled<columns>([&](auto j) __attribute__((always_inline)) {
          sums[i * columns + j] += left * right[j];
        });
      });
    };
    auto whole = [](const Element* at)
                     __attribute__((always_inline)) { return load<Element, bytes>(at); };
    constexpr int line = 64 / sizeof(Element);
    int64_t k = range.from;
    for (; k + line <= range.until; k += line) {
      unrolled<columns>([&](auto j) __attribute__((always_inline)) {
        __builtin_prefetch(b + j * b_column + k + range.ahead, 0, 2);
      });
      unrolled<line / lanes>([&](auto i)
                                 __attribute__((always_inline)) { add(k + i * lanes, whole); });
    }
    for (; k + lanes <= range.until; k += lanes) add(k, whole);
    if (k < range.until)
      add(k, [&](const Element* at) __attribute__((always_inline)) {
        return load_part<Element, bytes>(at, range.until - k);
      });
    float* out = call.sums + row * call.sums_row + column;
    unrolled<rows * columns>([&](auto i) __attribute__((always_inline)) {
      if (range.until < call.k)
        spilled[i] = sums[i];
      else
        out[i / columns * call.sums_row + i % columns] = total<bytes>(sums[i]);
    });
  }

  [[gnu::always_inline]] static inline void all_rows(const Call& call, int64_t column, Range range,
                                                     Vector* spilled) {
    for (int64_t row = 0; row < call.m; row += tile_rows, spilled += tile_rows * tile_columns) {
      switch (call.m - row) {
        case 1:
          tile<tile_columns, 1>(call, column, row, range, spilled);
          break;
        case 2:
          tile<tile_columns, 2>(call, column, row, range, spilled);
          break;
        case 3:
          tile<tile_columns, 3>(call, column, row, range, spilled);
          break;
        default:
          tile<tile_columns, tile_rows>(call, column, row, range, spilled);
      }
      range.ahead = 0;  // the tiles of other rows read the same columns
    }
  }

  [[gnu::always_inline]] static inline void run(const Call* call, int64_t begin, int64_t end) {
    Vector spilled[group * most_skinny_rows];
    const int64_t depth = call->is_memory_bound() ? 2048 : 256, stride = call->b_stride;
    for (int64_t first = begin; first < end; first += group) {
      const int64_t last = std::min(end, first + group);
      for (int64_t from = 0; from < call->k; from += depth) {
        Range range{from, std::min(call->k, from + depth), tile_columns * stride};
        Vector* sums = spilled;
        int64_t column = first;
        for (; column + tile_columns <= last; column += tile_columns) {
          // The last tile is followed by the first one of the next range, or of the next group.
          if (column + 2 * tile_columns > last)
            range.ahead = range.until < call->k ? depth - (column - first) * stride
                                                : tile_columns * stride - from;
          all_rows(*call, column, range, sums);
          sums += tile_columns * call->m;
        }
        for (; column < last; ++column)
          for (int64_t row = 0; row < call->m; ++row) tile<1, 1>(*call, column, row, range, sums++);
      }
    }
  }
};

// ---- contiguous rows of b: sums of multiples of its rows

// A tile adds multiples of a few rows of b, which are read side by side, to the sums of `rows`
// rows. Products that are bound by arithmetic do so for a panel of columns, whose sums stay in L2.
template <class Element, int bytes>
struct Multiples {
  using Vector = VectorOf<float, bytes>;
  static constexpr int lanes = bytes / 4;
  static constexpr int tile_vectors = bytes == 64 ? 4 : 2, most_rows = 6;
  static constexpr int tile_columns = tile_vectors * lanes;

  struct Range {
    int64_t from, until;  // of k
    int64_t ahead;        // elements from a row of b to the one that is to be prefetched
  };

  // Computes `vectors` vectors of columns, or, where `present` is not 0, only so many columns of
  // one vector.
  template <int rows, int vectors>
  [[gnu::always_inline]] static inline void tile(const Call& call, int64_t row, int64_t column,
                                                 const Range& range, int64_t present) {
    const int64_t a_row = call.a_stride, b_row = call.b_stride;
    const float* a = call.a + range.from * a_row + row;
    const Element* b = static_cast<const Element*>(call.b) + range.from * b_row + column;
    float* out = call.sums + row * call.sums_row + column;
    auto sums_at = [&](int i) __attribute__((always_inline)) {
      return out + i / vectors * call.sums_row + i % vectors * lanes;
    };
    Vector sums[rows * vectors];
    unrolled<rows * vectors>([&](auto i) __attribute__((always_inline)) {
      sums[i] = range.from == 0 ? Vector{}
                : present == 0  ? *reinterpret_cast<const Vector*>(sums_at(i))
                                : load_part<float, bytes>(sums_at(i), present);
    });
    for (int64_t k = range.from; k < range.until; ++k, a += a_row, b += b_row) {
      Vector right[vectors];
      unrolled<vectors>([&](auto j) __attribute__((always_inline)) {
        right[j] = present == 0 ? load<Element, bytes>(b + j * lanes)
                                : load_part<Element, bytes>(b, present);
      });
      constexpr int line = 64 / sizeof(Element);
      unrolled<(vectors * lanes + line - 1) / line>([&](auto j) __attribute__((always_inline)) {
        __builtin_prefetch(b + range.ahead + j * line, 0, 2);
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

  [[gnu::always_inline]] static inline void some_rows(const Call& call, int64_t row, int64_t count,
                                                      int64_t column, const Range& range) {
    switch (count) {
      case 1:
        return tile<1, tile_vectors>(call, row, column, range, 0);
      case 2:
        return tile<2, tile_vectors>(call, row, column, range, 0);
      case 3:
        return tile<3, tile_vectors>(call, row, column, range, 0);
      case 4:
        return tile<4, tile_vectors>(call, row, column, range, 0);
      case 5:
        return tile<5, tile_vectors>(call, row, column, range, 0);
      default:
        static_assert(most_rows == 6);
        return tile<most_rows, tile_vectors>(call, row, column, range, 0);
    }
  }

  [[gnu::always_inline]] static inline void run(const Call* call, int64_t begin, int64_t end) {
    constexpr int64_t panel_sums = 8192;
    const int64_t panel = panel_sums / call->m / tile_columns * tile_columns;
    const int64_t depth = call->is_memory_bound() ? 8 : 16;
    const int64_t step = ceil_div(call->m, ceil_div<int64_t>(call->m, most_rows));
    for (int64_t first = begin; first < end; first += panel)
      for (int64_t from = 0; from < call->k; from += depth) {
        // Long rows are prefetched by the processor.
        const int64_t ahead = call->is_memory_bound() ? 0 : depth * call->b_stride;
        const Range fetching{from, std::min(call->k, from + depth), ahead};
        const Range again{fetching.from, fetching.until, 0};
        const int64_t last = std::min(end, first + panel);
        int64_t column = first;
        for (; column + tile_columns <= last; column += tile_columns)
          for (int64_t row = 0; row < call->m; row += step)
            some_rows(*call, row, std::min(step, call->m - row), column,
                      row == 0 ? fetching : again);
        for (; column < last; column += lanes)
          for (int64_t row = 0; row < call->m; ++row)
            tile<1, 1>(*call, row, column, again, std::min<int64_t>(lanes, last - column));
      }
  }
};

// ---- conversions

template <class Element>
struct Pack {
  [[gnu::always_inline]] static inline void run(const void* from, const MatrixStrides* strides,
                                                int64_t rows, int64_t columns, float* to,
                                                int64_t to_stride) {
    for (int64_t i = 0; i < rows; ++i, to += to_stride) {
      const Element* row = static_cast<const Element*>(from) + i * strides->row;
      if (strides->column == 1)
        for (int64_t j = 0; j < columns; ++j) to[j] = to_lane<float>(row[j]);
      else
        for (int64_t j = 0; j < columns; ++j) to[j] = to_lane<float>(row[j * strides->column]);
      for (int64_t j = columns; j < to_stride; ++j) to[j] = 0;
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
template <template <class, int> class Product, class Element>
Runner best_product() {
  return best_of<Runner>(run_avx512<Product<Element, 64>>, run_avx2<Product<Element, 32>>,
                         run_baseline<Product<Element, 16>>);
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

// Returns the stride of a as it is packed, and its bytes.
int64_t packed_stride(const Contraction& task) {
  return by_dots(task) ? round_up(task.k, line_floats) + line_floats : task.m;
}
size_t packed_bytes(const Contraction& task) {
  return aligned(static_cast<size_t>((by_dots(task) ? task.m : task.k) * packed_stride(task)) *
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
  auto* packed = static_cast<float*>(workspace);
  auto* sums = reinterpret_cast<float*>(static_cast<std::byte*>(workspace) + packed_bytes(task));
  const bool dots = by_dots(task), in_result = sums_in_result(task);
  const Call call{.m = task.m,
                  .n = task.n,
                  .k = task.k,
                  .a = packed,
                  .a_stride = packed_stride(task),
                  .b = b,
                  .b_stride = dots ? task.b.column : task.b.row,
                  .sums = in_result ? static_cast<float*>(result) : sums,
                  .sums_row = in_result ? task.result.row : task.n,
                  .result = result,
                  .result_row = task.result.row};
  const MatrixStrides across{.batch = {}, .row = task.a.column, .column = task.a.row};
  with_float(task.a_dtype, [&]<class Element>(Element, auto) {
    run_on_best<Pack<Element>>(a, dots ? &task.a : &across, dots ? task.m : task.k,
                               dots ? task.k : task.m, packed, call.a_stride);
  });
  Runner run = nullptr, round = nullptr;
  with_float(task.b_dtype, [&]<class Element, class Lane>(Element, Lane) {
    if constexpr (std::is_same_v<Lane, float>)
      run = dots ? best_product<Dots, Element>() : best_product<Multiples, Element>();
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
