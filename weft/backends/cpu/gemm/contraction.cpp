// This is one file because tiling, the loops over tiles and their choice by instruction set are
// inlined together, below this file's #pragmas about optimization.
#include "weft/backends/cpu/gemm/contraction.h"

#include <algorithm>
#include <optional>
#include <type_traits>
#include <utility>

#include "weft/backends/cpu/gemm/contraction_packing.h"
#include "weft/backends/cpu/gemm/few_rows.h"
#include "weft/base/error.h"
#include "weft/base/host/parallel.h"
#include "weft/base/memory/buffer.h"

// A multiply-add is one operation of this product, so it may be contracted to one instruction.
#if defined(__clang__)
#pragma clang fp contract(fast)
#else
#pragma GCC optimize("O3", "fp-contract=fast")
#endif
#include "weft/backends/cpu/blocks/int8_dots.h"
#include "weft/base/host/isa_dispatch.h"
#include "weft/base/memory/alignment.h"
#include "weft/base/numbers/rounding.h"

namespace weft::cpu {
namespace {

// ---- blocks
// ---------------------------------------------------------------------------------------

// Blocks says how a task is tiled: items of at most `rows` x `columns` of one matrix, `depth` of K
// at a time. The packed rows of an item stay in L2, one packed panel of columns in L1.
struct Blocks {
  int64_t rows, columns, depth;
  int64_t row_items, column_items, items;
};
constexpr int64_t most_tile_rows = 8, most_tile_bytes = 128;  // maxima over all instruction sets
constexpr int64_t most_item_rows = 32 * most_tile_rows;
// Returns the columns of the widest tile, in elements of the sums.
int64_t most_lanes(const Contraction& task) {
  return static_cast<int64_t>(most_tile_bytes / size_of(lane_dtype(task)));
}

// Returns whether sums stay in the result's own memory, not in scratch until they are rounded.
bool sums_in_place(const Contraction& task) {
  return size_of(task.dtype) == size_of(lane_dtype(task)) && task.result.column == 1;
}

Blocks cut(const Contraction& task, int threads) {
  const int64_t lanes = most_lanes(task);
  const int64_t most_columns = 32 * lanes;
  const int64_t matrices = element_count(task.batch);
  int64_t row_items = ceil_div(task.m, most_item_rows);
  int64_t column_items = ceil_div(task.n, most_columns);
  auto uneven = [&](int64_t items) { return items % threads != 0 && items < 8 * threads; };
  while (uneven(matrices * row_items * column_items)) {
    bool rows_left = task.m / row_items >= 2 * most_tile_rows;
    bool columns_left = task.n / column_items >= 2 * lanes;
    if (columns_left && (!rows_left || task.n / column_items >= task.m / row_items))
      ++column_items;
    else if (rows_left)
      ++row_items;
    else
      break;
  }
  Blocks blocks;
  blocks.rows = round_up(ceil_div(task.m, row_items), most_tile_rows);
  blocks.columns = round_up(ceil_div(task.n, column_items), lanes);
  blocks.depth = std::min(task.k, contraction_depth);
  blocks.row_items = ceil_div(task.m, blocks.rows);
  blocks.column_items = ceil_div(task.n, blocks.columns);
  blocks.items = matrices * blocks.row_items * blocks.column_items;
  return blocks;
}

// Returns the columns of a tile of this process's instruction set.
int64_t tile_columns_of(const Contraction& task) {
  const int64_t bytes = best_of<int64_t>(most_tile_bytes, most_tile_bytes / 2, most_tile_bytes / 4);
  return bytes / static_cast<int64_t>(size_of(lane_dtype(task)));
}

// Scratch holds the bytes of one thread's packed rows, one packed panel, one tile for the edges,
// and sums.
struct Scratch {
  size_t rows, panel, tile, sums;
  size_t total() const { return rows + panel + tile + sums; }
};
Scratch scratch_of(const Contraction& task, const Blocks& blocks) {
  const size_t lane = size_of(lane_dtype(task)), depth = static_cast<size_t>(blocks.depth);
  // Rounding the rows up to a multiple of any tile height adds less than most_tile_rows.
  const auto rows = static_cast<size_t>(blocks.rows + most_tile_rows);
  return {aligned(rows * depth * lane), aligned(most_tile_bytes * depth),
          aligned(most_tile_rows * most_tile_bytes),
          sums_in_place(task) ? 0 : aligned(rows * static_cast<size_t>(blocks.columns) * lane)};
}

// ---- the kernel, for one instruction set
// ----------------------------------------------------------

// Lines are the cache lines of rows or of a panel that will be packed next, or of a result tile.
// They are prefetched one at a time while the packed panel is multiplied.
struct Lines {
  const std::byte *at = nullptr, *row = nullptr;
  int64_t along = 0;  // bytes from one row of lines to the next
  int64_t per_row = 0, in_row = 0, left = 0;

  Lines() = default;
  Lines(const void* source, int64_t size, int64_t stride, int64_t depth_stride, int64_t width,
        int64_t depth) {
    const bool deep = depth_stride == 1;
    if (!deep && stride != 1) return;
    at = row = static_cast<const std::byte*>(source);
    along = (deep ? stride : depth_stride) * size;
    // An unaligned row covers one line more.
    const bool aligned =
        (reinterpret_cast<uintptr_t>(at) | static_cast<uintptr_t>(along)) % line_bytes == 0;
    per_row = ceil_div((deep ? depth : width) * size, line_bytes) + (aligned ? 0 : 1);
    left = per_row * (deep ? width : depth);
  }
  template <bool to_write = false>
  [[gnu::always_inline]] void prefetch() {
    if (left == 0) return;
    --left;
    __builtin_prefetch(at, to_write, to_write ? 3 : 2);  // to L1, else to L2
    at += line_bytes;
    if (++in_row < per_row) return;
    in_row = 0;
    at = row += along;
  }

  static constexpr int64_t line_bytes = 64;
};
struct Prefetches {
  Lines rows, panel, tile;
  int64_t every = 0;  // iterations of the innermost loop between prefetches
  [[gnu::always_inline]] void prefetch() {
    rows.prefetch();
    panel.prefetch();
    tile.prefetch<true>();
  }
};

// Sum is the type of a lane's sum; both products of a Pair are added to one 32-bit sum.
template <class Lane>
using Sum = std::conditional_t<std::is_same_v<Lane, Pair>, uint32_t, Lane>;

template <class Lane, class Vector>
[[gnu::always_inline]] inline void multiply_add(Vector& sums, Sum<Lane> a, const Vector& b) {
  if constexpr (std::is_same_v<Lane, Pair>)
    int8::add_pairs(sums, a, b);
  else
    sums += a * b;
}

// The microkernel computes c[tile_rows, 2 vectors] (+)= a panel[k, tile_rows] x b panel[k, 2
// vectors], and adds a bias, if not null, to each row.
template <class Lane, int vector_bytes, int tile_rows>
[[gnu::always_inline]] inline void tile_product(const Sum<Lane>* a, const Sum<Lane>* b,
                                                const float* bias, Sum<Lane>* c, int64_t c_row,
                                                int64_t depth, bool first, Prefetches& prefetches) {
  using Vector [[gnu::vector_size(vector_bytes)]] = Sum<Lane>;
  using Loose [[gnu::vector_size(vector_bytes), gnu::aligned(alignof(Lane)), gnu::may_alias]] =
      Sum<Lane>;
  constexpr int lanes = vector_bytes / static_cast<int>(sizeof(Lane));
  Vector sums[tile_rows][2];
#pragma GCC unroll 16
  for (int i = 0; i < tile_rows; ++i) sums[i][0] = sums[i][1] = Vector{};
  for (int64_t done = 0; done < depth;) {
    const int64_t until = std::min(depth, done + prefetches.every);
    prefetches.prefetch();
    for (; done < until; ++done) {
      const Vector left = *reinterpret_cast<const Loose*>(b);
      const Vector right = *reinterpret_cast<const Loose*>(b + lanes);
#pragma GCC unroll 16
      for (int i = 0; i < tile_rows; ++i) {
        multiply_add<Lane>(sums[i][0], a[i], left);
        multiply_add<Lane>(sums[i][1], a[i], right);
      }
      a += tile_rows;
      b += 2 * lanes;
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < tile_rows; ++i) {
    auto* out = reinterpret_cast<Loose*>(c + i * c_row);
    auto* next = reinterpret_cast<Loose*>(c + i * c_row + lanes);
    if (first)
      *out = sums[i][0], *next = sums[i][1];
    else
      *out += sums[i][0], *next += sums[i][1];
    if constexpr (std::is_same_v<Lane, float>) {
      if (bias == nullptr) continue;
      *out += *reinterpret_cast<const Loose*>(bias);
      *next += *reinterpret_cast<const Loose*>(bias + lanes);
    }
  }
}

template <class Lane, int vector_bytes, int tile_rows>
struct Machine {
  using Number = Sum<Lane>;
  static constexpr int tile_columns = 2 * vector_bytes / static_cast<int>(sizeof(Lane));

  // Block is the work for which rows are packed once: one item over one range of K.
  struct Block {
    const std::byte *a, *b;
    void* result;
    int64_t rows, columns, depth;
    const float* bias;  // of the columns, in the last range of K; null: none
    bool first, last;   // whether this is the item's first or last range of K
  };
  struct Job {
    const Contraction& task;
    const Blocks& blocks;
    const Scratch& sizes;
    const Packing& packing;
    const void *a, *b;
    void* result;
    std::byte* scratch;

    template <class T = Number>
    T* scratch_at(size_t offset) const {
      return reinterpret_cast<T*>(scratch + offset);
    }
  };

  [[gnu::always_inline]] static inline Block block_at(const Job& job, int64_t index) {
    const Contraction& task = job.task;
    const Blocks& blocks = job.blocks;
    const int64_t ranges = ceil_div(task.k, blocks.depth);
    const int64_t from = index % ranges * blocks.depth;
    int64_t rest = index / ranges;
    const int64_t row = rest % blocks.row_items * blocks.rows;
    rest /= blocks.row_items;
    const int64_t column = rest % blocks.column_items * blocks.columns;
    rest /= blocks.column_items;
    const bool last = from + blocks.depth >= task.k;
    int64_t a = row * task.a.row + from * task.a.column;
    int64_t b = column * task.b.column + from * task.b.row;
    int64_t result = row * task.result.row + column * task.result.column;
    for (int axis = task.batch.size() - 1; axis >= 0; --axis) {
      const int64_t at = rest % task.batch[axis];
      rest /= task.batch[axis];
      a += at * task.a.batch[axis];
      b += at * task.b.batch[axis];
      result += at * task.result.batch[axis];
    }
    return {
        static_cast<const std::byte*>(job.a) + a * job.packing.a_bytes,
        static_cast<const std::byte*>(job.b) + b * job.packing.b_bytes,
        static_cast<std::byte*>(job.result) + result * static_cast<int64_t>(size_of(task.dtype)),
        std::min(blocks.rows, task.m - row),
        std::min(blocks.columns, task.n - column),
        std::min(blocks.depth, task.k - from),
        last && job.packing.bias != nullptr ? job.packing.bias + column : nullptr,
        from == 0 && !task.accumulate,
        last};
  }

  [[gnu::always_inline]] static inline Lines rows_of(const Job& job, const Block& block) {
    return {block.a,           job.packing.a_bytes, job.task.a.row,
            job.task.a.column, block.rows,          block.depth};
  }
  [[gnu::always_inline]] static inline Lines panel_of(const Job& job, const Block& block,
                                                      int64_t column) {
    const int64_t bytes = job.packing.b_bytes;
    const std::byte* at = block.b + column * job.task.b.column * bytes;
    if (job.packing.has_panels) return {at, bytes, 1, tile_columns, tile_columns, block.depth};
    return {at,
            bytes,
            job.task.b.column,
            job.task.b.row,
            std::min<int64_t>(tile_columns, block.columns - column),
            block.depth};
  }

  // Accumulates one block and prefetches for `next`, the block that follows, or this one if it is
  // the last.
  [[gnu::always_inline]] static inline void accumulate(const Job& job, const Block& block,
                                                       const Block& next) {
    const Contraction& task = job.task;
    const Scratch& sizes = job.sizes;
    Number* rows = job.scratch_at(0);
    Number* packed = job.scratch_at(sizes.rows);
    Number* edge = job.scratch_at(sizes.rows + sizes.panel);
    const bool in_place = sizes.sums == 0;
    const int64_t c_row = in_place ? task.result.row : job.blocks.columns;
    Number* c = in_place ? static_cast<Number*>(block.result)
                         : job.scratch_at(sizes.rows + sizes.panel + sizes.tile);
    job.packing.rows(block.a, task.a.row, task.a.column, block.rows, block.depth, rows);
    Prefetches prefetches{.rows = rows_of(job, next)};
    for (int64_t j = 0; j < block.columns; j += tile_columns) {
      const int64_t columns = std::min<int64_t>(tile_columns, block.columns - j);
      const std::byte* b = block.b + j * task.b.column * job.packing.b_bytes;
      const auto* panel = reinterpret_cast<const Number*>(b);
      const float* const bias = block.bias == nullptr ? nullptr : block.bias + j;
      if (!job.packing.has_panels) {
        job.packing.panel(b, task.b.column, task.b.row, columns, block.depth, packed);
        panel = packed;
      }
      prefetches.panel =
          j + columns < block.columns ? panel_of(job, block, j + columns) : panel_of(job, next, 0);
      const int64_t tiles = ceil_div(block.rows, tile_rows);
      const Lines tile(c + j, sizeof(Lane), c_row, 1, tile_rows, tile_columns);
      const int64_t lines = std::max(tile.left, ceil_div(prefetches.panel.left, tiles));
      prefetches.every = std::max<int64_t>(4, block.depth / lines);
      for (int64_t i = 0; i < block.rows; i += tile_rows) {
        const Number* a = rows + i * block.depth;
        Number* target = c + i * c_row + j;
        prefetches.tile =
            i + tile_rows < block.rows
                ? Lines(target + tile_rows * c_row, sizeof(Lane), c_row, 1, tile_rows, tile_columns)
                : Lines();
        const int64_t height = std::min<int64_t>(tile_rows, block.rows - i);
        if (!in_place || (columns == tile_columns && height == tile_rows)) {
          tile_product<Lane, vector_bytes, tile_rows>(a, panel, bias, target, c_row, block.depth,
                                                      block.first, prefetches);
          continue;
        }
        tile_product<Lane, vector_bytes, tile_rows>(a, panel, nullptr, edge, tile_columns,
                                                    block.depth, true, prefetches);
        for (int64_t y = 0; y < height; ++y)
          for (int64_t x = 0; x < columns; ++x) {
            Number& out = target[y * c_row + x];
            out = block.first ? edge[y * tile_columns + x] : out + edge[y * tile_columns + x];
            if constexpr (std::is_same_v<Lane, float>)
              if (bias != nullptr) out += bias[x];
          }
      }
    }
  }

  [[gnu::always_inline]] static inline void run(const Contraction* task, const Blocks* blocks,
                                                const Scratch* sizes, const Packing* packing,
                                                const void* a, const void* b, void* result,
                                                std::byte* scratch, int64_t begin, int64_t end) {
    if (begin == end) return;
    const Job job{*task, *blocks, *sizes, *packing, a, b, result, scratch};
    const int64_t ranges = ceil_div(task->k, blocks->depth);
    begin *= ranges, end *= ranges;
    Block next = block_at(job, begin);
    for (int64_t index = begin; index < end; ++index) {
      const Block block = next;
      if (index + 1 < end) next = block_at(job, index + 1);
      accumulate(job, block, next);
      if (!block.last || sizes->sums == 0) continue;
      packing->round(job.scratch_at(sizes->rows + sizes->panel + sizes->tile), blocks->columns,
                     &task->result, block.rows, block.columns, block.result);
    }
  }
};

// ---- instruction sets
// -----------------------------------------------------------------------------

using Runner = void (*)(const Contraction*, const Blocks*, const Scratch*, const Packing*,
                        const void*, const void*, void*, std::byte*, int64_t, int64_t);

template <class Lane>
Runner best_runner() {
  return best_of<Runner>(run_avx512<Machine<Lane, 64, avx512_tile_rows>>,
                         run_avx2<Machine<Lane, 32, avx2_tile_rows>>,
                         run_baseline<Machine<Lane, 16, baseline_tile_rows>>);
}
Runner runner(const Contraction& task) {
  if (in_pairs(task)) return best_runner<Pair>();
  switch (lane_dtype(task)) {
    case DType::f64:
      return best_runner<double>();
    case DType::f32:
      return best_runner<float>();
    case DType::i64:
      return best_runner<uint64_t>();
    default:
      return best_runner<uint32_t>();
  }
}

// Kernels need a result with a column stride of 1. A result with a row stride of 1 instead is
// computed as the transposed product (`swapped`).
Contraction dense_columns(Contraction task, bool& swapped) {
  swapped = task.result.column != 1 && task.result.row == 1;
  if (!swapped) return task;
  std::swap(task.m, task.n);
  std::swap(task.a, task.b);
  std::swap(task.a_dtype, task.b_dtype);
  for (MatrixStrides* strides : {&task.a, &task.b, &task.result})
    std::swap(strides->row, strides->column);
  return task;
}

void fill_zeros(const Contraction& task, void* result) {
  const int64_t count = element_count(task.batch) * task.m * task.n;
  for (int64_t index = 0; index < count; ++index) {
    int64_t at = index % task.n * task.result.column + index / task.n % task.m * task.result.row;
    int64_t rest = index / task.n / task.m;
    for (int axis = task.batch.size() - 1; axis >= 0; --axis, rest /= task.batch[axis + 1])
      at += rest % task.batch[axis] * task.result.batch[axis];
    store(result, task.dtype, at, 0);
  }
}

// Returns the task with its depth in lanes: where products are summed in pairs, two steps of K are
// one.
Contraction in_lanes(Contraction task) {
  if (!in_pairs(task)) return task;
  task.k /= 2;
  task.a.column *= 2;
  task.b.row *= 2;
  return task;
}

bool is_empty(const Contraction& task) {
  return element_count(task.batch) == 0 || task.m == 0 || task.n == 0;
}
}  // namespace

bool contracts(const Contraction& task) { return packing_of(task).has_value(); }
bool accumulates(const Contraction& task) {
  bool swapped = false;
  return sums_in_place(dense_columns(task, swapped));
}

size_t contraction_workspace(const Contraction& given, int threads) {
  if (is_empty(given) || given.k == 0) return 0;
  bool swapped = false;
  const Contraction task = in_lanes(dense_columns(given, swapped));
  const Blocks blocks = cut(task, threads);
  const int64_t parts = std::min<int64_t>(threads, blocks.items);
  return static_cast<size_t>(parts) * scratch_of(task, blocks).total();
}

size_t contraction_workspace_by_rows(const Contraction& task, int threads) {
  if (is_empty(task) || task.k == 0) return 0;
  // These are the largest blocks that cut() makes for any number of rows up to task.m.
  const int64_t lanes = most_lanes(task);
  const Blocks largest{.rows = round_up(std::min(task.m, most_item_rows), most_tile_rows),
                       .columns = round_up(std::min(task.n, 32 * lanes), lanes),
                       .depth = std::min(task.k, contraction_depth)};
  return static_cast<size_t>(threads) * scratch_of(task, largest).total();
}

namespace {
Packing known_packing(const Contraction& task) {
  const std::optional<Packing> packing = packing_of(task);
  WEFT_ASSERT(packing.has_value(), "no matrix product of {} and {} in {}", name(task.a_dtype),
              name(task.b_dtype), name(task.dtype));
  return *packing;
}

// Computes a product that is not empty and whose result has a column stride of 1.
void contract(const Contraction& whole, const Packing& packing, const void* a, const void* b,
              void* result, void* workspace, int threads) {
  const Contraction task = in_lanes(whole);
  WEFT_ASSERT(!task.accumulate || sums_in_place(task), "nothing to add {} to", name(task.dtype));
  const Blocks blocks = cut(task, threads);
  const Scratch sizes = scratch_of(task, blocks);
  const Runner run = runner(whole);
  const int64_t parts = std::min<int64_t>(threads, blocks.items);
  parallel_for(parts, [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part)
      run(&task, &blocks, &sizes, &packing, a, b, result,
          static_cast<std::byte*>(workspace) + static_cast<size_t>(part) * sizes.total(),
          blocks.items * part / parts, blocks.items * (part + 1) / parts);
  });
}
}  // namespace

void contract(const Contraction& given, const void* a, const void* b, void* result, void* workspace,
              int threads) {
  if (is_empty(given)) return;
  if (given.k == 0 && given.accumulate) return;
  if (given.k == 0) return fill_zeros(given, result);
  bool swapped = false;
  const Contraction task = dense_columns(given, swapped);
  if (swapped) std::swap(a, b);
  contract(task, known_packing(task), a, b, result, workspace, threads);
}

// With more rows packing b takes less than a hundredth of the product.
constexpr int64_t most_panel_rows = 8 * most_item_rows;

size_t panels_bytes(const Contraction& task) {
  bool swapped = false;
  dense_columns(task, swapped);
  if (!task.fixed_b || swapped || !task.batch.empty() || is_empty(task) || task.k == 0) return 0;
  if (task.m > most_panel_rows || in_pairs(task) || task.b_dtype != lane_dtype(task)) return 0;
  return static_cast<size_t>(round_up(task.n, most_lanes(task)) * task.k) * size_of(task.b_dtype);
}

void pack_panels(const Contraction& task, const void* b, void* panels) {
  const Packing packing = known_packing(task);
  const int64_t width = tile_columns_of(task);
  parallel_for(ceil_div(task.n, width), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      packing.panel(static_cast<const std::byte*>(b) + i * width * task.b.column * packing.b_bytes,
                    task.b.column, task.b.row, std::min(width, task.n - i * width), task.k,
                    static_cast<std::byte*>(panels) + i * width * task.k * packing.b_bytes);
  });
}

void contract_panels(const Contraction& given, const void* a, const void* panels, const float* bias,
                     void* result, void* workspace, int threads) {
  WEFT_ASSERT(bias == nullptr || given.dtype == DType::f32, "no bias is added in {}",
              name(given.dtype));
  if (has_few_rows(given))
    return multiply_few_rows(given, static_cast<const float*>(a), static_cast<const float*>(panels),
                             bias, static_cast<float*>(result), threads);
  Contraction task = given;
  task.b.column = task.k;
  task.b.row = tile_columns_of(task);
  Packing packing = known_packing(task);
  packing.has_panels = true;
  packing.bias = bias;
  contract(task, packing, a, panels, result, workspace, threads);
}
}  // namespace weft::cpu
