// This is one file because the loops are inlined into one function for each instruction set, all of
// it below this file's #pragmas about optimization.
#include "weft/backends/cpu/gemm/few_rows.h"

#include <algorithm>

#include "weft/backends/cpu/gemm/contraction.h"
#include "weft/base/host/parallel.h"

// A multiply-add is one operation of this product, so it may be contracted to one instruction.
#if defined(__clang__)
#pragma clang fp contract(fast)
#else
#pragma GCC optimize("O3", "fp-contract=fast")
#endif
#include "weft/backends/cpu/rows/transpose.h"
#include "weft/base/host/isa_dispatch.h"
#include "weft/base/numbers/rounding.h"

namespace weft::cpu {
namespace {

struct Call {
  const Contraction& task;
  const float *a, *panels, *bias;
  float* result;
};

// Nothing is packed or prefetched: a is small, and the hardware prefetcher follows a panel faster
// than software prefetches of its lines. With one or two rows the kernel computes several panels
// side by side, because the latency of a multiply-add exceeds the time to load its operand.
template <int vector_bytes>
struct FewRows {
  using Vector = VectorOf<float, vector_bytes>;
  static constexpr int lanes = vector_bytes / 4, width = 2 * lanes;
  static constexpr int most_rows = vector_bytes == 64 ? 8 : 4;

  // Adds the products of one range of k to a tile's sums and, after the last range, the bias. The
  // tile's rows from m on repeat row m - 1.
  template <int rows, int panels>
  [[gnu::always_inline]] static inline void tile(const Call& call, int64_t row, int64_t column,
                                                 int64_t from, int64_t until) {
    const Contraction& task = call.task;
    const float* a[rows];
#pragma GCC unroll 8
    for (int i = 0; i < rows; ++i)
      a[i] = call.a + std::min(row + i, task.m - 1) * task.a.row + from * task.a.column;
    const float* b[panels];
#pragma GCC unroll 4
    for (int p = 0; p < panels; ++p)
      b[p] = call.panels + (column + p * width) * task.k + from * width;
    Vector sums[rows][panels][2] = {};
    for (int64_t k = from, at = 0; k < until; ++k, at += task.a.column)
#pragma GCC unroll 4
      for (int p = 0; p < panels; ++p) {
        const Vector left = *reinterpret_cast<const Vector*>(b[p]);
        const Vector right = *reinterpret_cast<const Vector*>(b[p] + lanes);
        b[p] += width;
#pragma GCC unroll 8
        for (int i = 0; i < rows; ++i) {
          sums[i][p][0] += a[i][at] * left;
          sums[i][p][1] += a[i][at] * right;
        }
      }
    const float* const bias = until == task.k ? call.bias : nullptr;
#pragma GCC unroll 8
    for (int i = 0; i < rows; ++i) {
      if (row + i >= task.m) break;
#pragma GCC unroll 4
      for (int p = 0; p < panels; ++p) {
        const int64_t at = column + p * width;
        float* const out = call.result + (row + i) * task.result.row + at;
        const int64_t present = std::min<int64_t>(width, task.n - at);
        if (present == width) {
          auto *left = reinterpret_cast<Vector*>(out), *right = left + 1;
          *left = from == 0 ? sums[i][p][0] : *left + sums[i][p][0];
          *right = from == 0 ? sums[i][p][1] : *right + sums[i][p][1];
          if (bias == nullptr) continue;
          *left += *reinterpret_cast<const Vector*>(bias + at);
          *right += *reinterpret_cast<const Vector*>(bias + at + lanes);
        } else {
          for (int64_t j = 0; j < present; ++j) {
            const float sum = sums[i][p][j / lanes][j % lanes];
            out[j] = from == 0 ? sum : out[j] + sum;
            if (bias != nullptr) out[j] += bias[at + j];
          }
        }
      }
    }
  }

  template <int rows, int panels>
  [[gnu::always_inline]] static inline void tiles(const Call& call, int64_t column, int64_t end) {
    for (; column + (panels - 1) * width < end; column += panels * width)
      for (int64_t from = 0; from < call.task.k; from += contraction_depth)
        for (int64_t row = 0; row < call.task.m; row += rows)
          tile<rows, panels>(call, row, column, from,
                             std::min(call.task.k, from + contraction_depth));
    if constexpr (panels > 1) tiles<rows, 1>(call, column, end);
  }

  // Computes the columns from `begin` to before `end`, which are multiples of the panels' but for
  // the last column.
  [[gnu::always_inline]] static inline void run(const Call* call, int64_t begin, int64_t end) {
    if (call->task.m == 1) return tiles<1, 4>(*call, begin, end);
    if (call->task.m == 2) return tiles<2, 2>(*call, begin, end);
    if (call->task.m <= 4) return tiles<4, 1>(*call, begin, end);
    tiles<most_rows, 1>(*call, begin, end);
  }
};
}  // namespace

bool has_few_rows(const Contraction& task) {
  const bool floats = task.a_dtype == DType::f32 && task.b_dtype == DType::f32;
  return floats && task.dtype == DType::f32 && task.batch.empty() && !task.accumulate &&
         task.m <= most_few_rows && (task.result.column == 1 || task.n == 1);
}

void multiply_few_rows(const Contraction& task, const float* a, const float* panels,
                       const float* bias, float* result, int threads) {
  const Call call{.task = task, .a = a, .panels = panels, .bias = bias, .result = result};
  constexpr int64_t unit = 128;               // columns: panels side by side, of any set
  constexpr int64_t worth_thread = 32 << 10;  // bytes of panels
  const int64_t units = ceil_div(task.n, unit);
  const int64_t bytes = task.n * task.k * static_cast<int64_t>(sizeof(float));
  const int64_t parts =
      std::clamp<int64_t>(bytes / worth_thread, 1, std::min<int64_t>(threads, units));
  using Runner = void (*)(const Call*, int64_t begin, int64_t end);  // for a range of columns
  const auto run =
      best_of<Runner>(run_avx512<FewRows<64>>, run_avx2<FewRows<32>>, run_baseline<FewRows<16>>);
  parallel_for(parts, [&](int64_t first, int64_t last) {
    run(&call, units * first / parts * unit, std::min(task.n, units * last / parts * unit));
  });
}
}  // namespace weft::cpu
