#include "weft/backends/cpu/contraction.h"

#include <algorithm>

#include "weft/backends/cpu/elements.h"
#include "weft/base/buffer.h"
#include "weft/base/error.h"
#include "weft/base/parallel.h"

// One multiply-add is one operation of this op, so it may be one instruction.
#if defined(__clang__)
#pragma clang fp contract(fast)
#else
#pragma GCC optimize("O3", "fp-contract=fast")
#pragma GCC diagnostic ignored "-Wpsabi"  // wide vectors never cross a call
#endif
#include "weft/base/isa.h"

namespace weft::cpu {
namespace {

// ---- blocks
// ---------------------------------------------------------------------------------------

// How a task is cut: items of at most `rows` x `columns` of one matrix, and `depth` of K at a time.
// The packed rows of an item stay in the second-level cache, one packed panel of columns in the
// first.
struct Blocks {
  int64_t rows, columns, depth;
  int64_t row_items, column_items, items;
};
constexpr int64_t block_depth = 256;
constexpr int64_t most_tile_rows = 8, most_tile_bytes = 128;  // of any instruction set below

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

size_t lane_bytes(DType dtype) { return dtype == DType::f64 || dtype == DType::i64 ? 8 : 4; }
// Whether sums are kept in the result's own memory, or in scratch until they are rounded.
bool sums_in_place(const Contraction& task) {
  return size_of(task.dtype) == lane_bytes(task.dtype) && task.result.column == 1;
}

Blocks cut(const Contraction& task, int threads) {
  const int64_t lanes = static_cast<int64_t>(most_tile_bytes / lane_bytes(task.dtype));
  const int64_t most_rows = 32 * most_tile_rows;
  const int64_t most_columns = (sums_in_place(task) ? 64 : 16) * lanes;
  const int64_t matrices = element_count(task.batch);
  int64_t row_items = ceil_div(task.m, most_rows), column_items = ceil_div(task.n, most_columns);
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
  blocks.rows = ceil_div(ceil_div(task.m, row_items), most_tile_rows) * most_tile_rows;
  blocks.columns = ceil_div(ceil_div(task.n, column_items), lanes) * lanes;
  blocks.depth = std::min(task.k, block_depth);
  blocks.row_items = ceil_div(task.m, blocks.rows);
  blocks.column_items = ceil_div(task.n, blocks.columns);
  blocks.items = matrices * blocks.row_items * blocks.column_items;
  return blocks;
}

size_t rounded(int64_t bytes) {
  return (static_cast<size_t>(bytes) + buffer_alignment - 1) / buffer_alignment * buffer_alignment;
}
// Scratch of one thread: packed rows, one packed panel, one tile for the edges, sums.
struct Scratch {
  size_t rows, panel, tile, sums;
  size_t total() const { return rows + panel + tile + sums; }
};
Scratch scratch_of(const Contraction& task, const Blocks& blocks) {
  const int64_t lane = static_cast<int64_t>(lane_bytes(task.dtype));
  // Any tile height divides less than one tile of rows more than the block.
  const int64_t rows = blocks.rows + most_tile_rows;
  return {rounded(rows * blocks.depth * lane), rounded(most_tile_bytes * blocks.depth),
          rounded(most_tile_rows * most_tile_bytes),
          sums_in_place(task) ? 0 : rounded(rows * blocks.columns * lane)};
}

// ---- the kernel, for one instruction set
// ----------------------------------------------------------

// c[tile_rows, 2 vectors] (+)= a panel[k, tile_rows] x b panel[k, 2 vectors]
template <class Lane, int vector_bytes, int tile_rows>
[[gnu::always_inline]] inline void tile_product(const Lane* a, const Lane* b, Lane* c,
                                                int64_t c_row, int64_t depth, bool first) {
  using Vector [[gnu::vector_size(vector_bytes)]] = Lane;
  using Loose [[gnu::vector_size(vector_bytes), gnu::aligned(alignof(Lane)), gnu::may_alias]] =
      Lane;
  constexpr int lanes = vector_bytes / static_cast<int>(sizeof(Lane));
  Vector sums[tile_rows][2];
#pragma GCC unroll 16
  for (int i = 0; i < tile_rows; ++i) sums[i][0] = sums[i][1] = Vector{};
  for (int64_t k = 0; k < depth; ++k) {
    const Vector left = *reinterpret_cast<const Loose*>(b);
    const Vector right = *reinterpret_cast<const Loose*>(b + lanes);
#pragma GCC unroll 16
    for (int i = 0; i < tile_rows; ++i) {
      sums[i][0] += a[i] * left;
      sums[i][1] += a[i] * right;
    }
    a += tile_rows;
    b += 2 * lanes;
  }
#pragma GCC unroll 16
  for (int i = 0; i < tile_rows; ++i) {
    auto* out = reinterpret_cast<Loose*>(c + i * c_row);
    auto* next = reinterpret_cast<Loose*>(c + i * c_row + lanes);
    if (first)
      *out = sums[i][0], *next = sums[i][1];
    else
      *out += sums[i][0], *next += sums[i][1];
  }
}

// A square of lanes transposed: to[j * to_stride + i] = from[i * from_stride + j].
template <class Lane>
[[gnu::always_inline]] inline void transpose_square(const Lane* from, int64_t from_stride, Lane* to,
                                                    int64_t to_stride) {
  using Loose [[gnu::vector_size(16), gnu::aligned(alignof(Lane)), gnu::may_alias]] = Lane;
  auto row = [&](int i) { return *reinterpret_cast<const Loose*>(from + i * from_stride); };
  auto put = [&](int j, Loose value) { *reinterpret_cast<Loose*>(to + j * to_stride) = value; };
  if constexpr (sizeof(Lane) == 8) {
    const Loose a = row(0), b = row(1);
    put(0, __builtin_shufflevector(a, b, 0, 2));
    put(1, __builtin_shufflevector(a, b, 1, 3));
  } else {
    const Loose a = row(0), b = row(1), c = row(2), d = row(3);
    const Loose ab_low = __builtin_shufflevector(a, b, 0, 4, 1, 5);
    const Loose ab_high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
    const Loose cd_low = __builtin_shufflevector(c, d, 0, 4, 1, 5);
    const Loose cd_high = __builtin_shufflevector(c, d, 2, 6, 3, 7);
    put(0, __builtin_shufflevector(ab_low, cd_low, 0, 1, 4, 5));
    put(1, __builtin_shufflevector(ab_low, cd_low, 2, 3, 6, 7));
    put(2, __builtin_shufflevector(ab_high, cd_high, 0, 1, 4, 5));
    put(3, __builtin_shufflevector(ab_high, cd_high, 2, 3, 6, 7));
  }
}

// One panel: packed[k * width + i] = source[i * stride + k * depth_stride], zeros from `present`
// on.
template <class Lane, int width, class Element>
[[gnu::always_inline]] inline void pack_panel(const Element* source, int64_t stride,
                                              int64_t depth_stride, int64_t present, int64_t depth,
                                              Lane* packed) {
  constexpr int side = 16 / static_cast<int>(sizeof(Lane));
  int64_t k = 0;
  if (present < width) {
    for (; k < depth; ++k)
      for (int64_t i = 0; i < width; ++i)
        packed[k * width + i] =
            i < present ? to_lane<Lane>(source[i * stride + k * depth_stride]) : Lane{};
    return;
  }
  if (stride == 1) {
    for (; k < depth; ++k)
      for (int i = 0; i < width; ++i)
        packed[k * width + i] = to_lane<Lane>(source[k * depth_stride + i]);
    return;
  }
  if constexpr (std::is_same_v<Element, Lane>)
    if (depth_stride == 1)
      for (; k + side <= depth; k += side)
        for (int i = 0; i < width; i += side) {
          const int row = std::min(i, width - side);  // the last square may overlap its neighbour
          transpose_square(source + row * stride + k, stride, packed + k * width + row, width);
        }
  for (; k < depth; ++k)
    for (int i = 0; i < width; ++i)
      packed[k * width + i] = to_lane<Lane>(source[i * stride + k * depth_stride]);
}

// `count` rows of `source` in panels of `width`: [count / width][depth][width].
template <class Lane, int width, class Element>
[[gnu::always_inline]] inline void pack(const Element* source, int64_t stride, int64_t depth_stride,
                                        int64_t count, int64_t depth, Lane* packed) {
  for (int64_t start = 0; start < count; start += width, packed += width * depth)
    pack_panel<Lane, width>(source + start * stride, stride, depth_stride,
                            std::min<int64_t>(width, count - start), depth, packed);
}

// Asks for the lines of one panel before they are needed.
template <class Element>
[[gnu::always_inline]] inline void prefetch_panel(const Element* source, int64_t stride,
                                                  int64_t depth_stride, int64_t width,
                                                  int64_t depth) {
  constexpr int64_t line = 64 / static_cast<int64_t>(sizeof(Element));
  if (depth_stride == 1) {
    for (int64_t i = 0; i < width; ++i)
      for (int64_t k = 0; k < depth; k += line) __builtin_prefetch(source + i * stride + k, 0, 2);
  } else if (stride == 1) {
    for (int64_t k = 0; k < depth; ++k)
      for (int64_t i = 0; i < width; i += line)
        __builtin_prefetch(source + k * depth_stride + i, 0, 2);
  }
}

template <class Element, class Lane, int vector_bytes, int tile_rows>
struct Machine {
  static constexpr int tile_columns = 2 * vector_bytes / static_cast<int>(sizeof(Lane));

  struct Item {
    const Element *a, *b;
    Element* result;
    int64_t rows, columns;
  };

  // One item, for one range of K.
  [[gnu::always_inline]] static inline void accumulate(const Contraction& task, const Item& item,
                                                       const Blocks& blocks, int64_t from,
                                                       std::byte* scratch, const Scratch& sizes) {
    auto* rows = reinterpret_cast<Lane*>(scratch);
    auto* panel = reinterpret_cast<Lane*>(scratch + sizes.rows);
    auto* edge = reinterpret_cast<Lane*>(scratch + sizes.rows + sizes.panel);
    auto* sums = reinterpret_cast<Lane*>(scratch + sizes.rows + sizes.panel + sizes.tile);
    const bool in_place = sizes.sums == 0, first = from == 0;
    const int64_t depth = std::min(blocks.depth, task.k - from);
    const int64_t c_row = in_place ? task.result.row : blocks.columns;
    Lane* c = in_place ? reinterpret_cast<Lane*>(item.result) : sums;
    pack<Lane, tile_rows>(item.a + from * task.a.column, task.a.row, task.a.column, item.rows,
                          depth, rows);
    for (int64_t j = 0; j < item.columns; j += tile_columns) {
      const int64_t columns = std::min<int64_t>(tile_columns, item.columns - j);
      const Element* source = item.b + from * task.b.row + j * task.b.column;
      pack_panel<Lane, tile_columns>(source, task.b.column, task.b.row, columns, depth, panel);
      if (j + 2 * tile_columns <= item.columns)
        prefetch_panel(source + tile_columns * task.b.column, task.b.column, task.b.row,
                       tile_columns, depth);
      for (int64_t i = 0; i < item.rows; i += tile_rows) {
        const Lane* a = rows + i * depth;
        Lane* target = c + i * c_row + j;
        const int64_t height = std::min<int64_t>(tile_rows, item.rows - i);
        if (!in_place || (columns == tile_columns && height == tile_rows)) {
          tile_product<Lane, vector_bytes, tile_rows>(a, panel, target, c_row, depth, first);
          continue;
        }
        tile_product<Lane, vector_bytes, tile_rows>(a, panel, edge, tile_columns, depth, true);
        for (int64_t y = 0; y < height; ++y)
          for (int64_t x = 0; x < columns; ++x) {
            Lane& out = target[y * c_row + x];
            out = first ? edge[y * tile_columns + x] : out + edge[y * tile_columns + x];
          }
      }
    }
  }

  [[gnu::always_inline]] static inline void finish(const Contraction& task, const Item& item,
                                                   const Blocks& blocks, const Lane* sums) {
    for (int64_t i = 0; i < item.rows; ++i)
      for (int64_t j = 0; j < item.columns; ++j)
        item.result[i * task.result.row + j * task.result.column] =
            from_lane<Element>(sums[i * blocks.columns + j]);
  }

  [[gnu::always_inline]] static inline void run(const Contraction* given, const Blocks* cut,
                                                const Scratch* scratch_sizes, const void* a,
                                                const void* b, void* result, std::byte* scratch,
                                                int64_t begin, int64_t end) {
    const Contraction& task = *given;
    const Blocks& blocks = *cut;
    const Scratch& sizes = *scratch_sizes;
    for (int64_t index = begin; index < end; ++index) {
      const int64_t row = index % blocks.row_items * blocks.rows;
      int64_t rest = index / blocks.row_items;
      const int64_t column = rest % blocks.column_items * blocks.columns;
      rest /= blocks.column_items;
      Item item{static_cast<const Element*>(a) + row * task.a.row,
                static_cast<const Element*>(b) + column * task.b.column,
                static_cast<Element*>(result) + row * task.result.row + column * task.result.column,
                std::min(blocks.rows, task.m - row), std::min(blocks.columns, task.n - column)};
      for (int axis = task.batch.size() - 1; axis >= 0; --axis) {
        const int64_t at = rest % task.batch[axis];
        rest /= task.batch[axis];
        item.a += at * task.a.batch[axis];
        item.b += at * task.b.batch[axis];
        item.result += at * task.result.batch[axis];
      }
      for (int64_t from = 0; from < task.k; from += blocks.depth)
        accumulate(task, item, blocks, from, scratch, sizes);
      if (sizes.sums > 0)
        finish(task, item, blocks,
               reinterpret_cast<const Lane*>(scratch + sizes.rows + sizes.panel + sizes.tile));
    }
  }
};

// ---- instruction sets
// -----------------------------------------------------------------------------

using Runner = void (*)(const Contraction*, const Blocks*, const Scratch*, const void*, const void*,
                        void*, std::byte*, int64_t, int64_t);

template <class Element, class Lane>
Runner best_runner() {
  switch (best_isa()) {
    case Isa::avx512:
      return run_avx512<Machine<Element, Lane, 64, 8>>;
    case Isa::avx2:
      return run_avx2<Machine<Element, Lane, 32, 6>>;
    case Isa::any:
      break;
  }
  return run_any<Machine<Element, Lane, 16, 6>>;
}

Runner runner(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return best_runner<double, double>();
    case DType::f32:
      return best_runner<float, float>();
    case DType::f16:
      return best_runner<Half, float>();
    case DType::bf16:
      return best_runner<BFloat16, float>();
    case DType::i64:
      return best_runner<uint64_t, uint64_t>();
    case DType::i32:
      return best_runner<uint32_t, uint32_t>();
    case DType::i16:
      return best_runner<int16_t, uint32_t>();
    case DType::i8:
      return best_runner<int8_t, uint32_t>();
    case DType::u8:
      return best_runner<uint8_t, uint32_t>();
    case DType::boolean:
      break;
  }
  return nullptr;
}

// A result whose rows are dense is computed as the transposed product, whose columns are.
Contraction dense_columns(Contraction task, bool& swapped) {
  swapped = task.result.column != 1 && task.result.row == 1;
  if (!swapped) return task;
  std::swap(task.m, task.n);
  std::swap(task.a, task.b);
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

bool is_empty(const Contraction& task) {
  return element_count(task.batch) == 0 || task.m == 0 || task.n == 0;
}
}  // namespace

bool contracts(DType dtype) { return dtype != DType::boolean; }

size_t contraction_workspace(const Contraction& given, int threads) {
  if (is_empty(given) || given.k == 0) return 0;
  bool swapped = false;
  const Contraction task = dense_columns(given, swapped);
  const Blocks blocks = cut(task, threads);
  const int64_t parts = std::min<int64_t>(threads, blocks.items);
  return static_cast<size_t>(parts) * scratch_of(task, blocks).total();
}

void contract(const Contraction& given, const void* a, const void* b, void* result, void* workspace,
              int threads) {
  if (is_empty(given)) return;
  if (given.k == 0) return fill_zeros(given, result);
  bool swapped = false;
  const Contraction task = dense_columns(given, swapped);
  if (swapped) std::swap(a, b);
  const Blocks blocks = cut(task, threads);
  const Scratch sizes = scratch_of(task, blocks);
  const Runner run = runner(task.dtype);
  WEFT_ASSERT(run != nullptr, "no matrix product of {}", name(task.dtype));
  const int64_t parts = std::min<int64_t>(threads, blocks.items);
  parallel_for(parts, [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part)
      run(&task, &blocks, &sizes, a, b, result,
          static_cast<std::byte*>(workspace) + static_cast<size_t>(part) * sizes.total(),
          blocks.items * part / parts, blocks.items * (part + 1) / parts);
  });
}
}  // namespace weft::cpu
