// This is one file because the transforms, the products and both directions are inlined into one
// function for each instruction set, all of it below this file's #pragma about optimization.
#include "weft/backends/cpu/conv/winograd.h"

#include <algorithm>

#include "weft/base/host/parallel.h"
#include "weft/base/memory/buffer.h"

// A multiply-add is one operation of this algorithm, so it may be contracted to one instruction.
#if defined(__clang__)
#pragma clang fp contract(fast)
#else
#pragma GCC optimize("O3", "fp-contract=fast")
#endif
#if defined(__clang__)
#pragma clang diagnostic ignored "-Walign-mismatch"  // arrays of vectors say their alignment
#endif
#include "weft/backends/cpu/rows/transpose.h"
#include "weft/base/host/isa_dispatch.h"
#include "weft/base/numbers/rounding.h"

namespace weft::cpu {
namespace {
constexpr int side = 6, points = side * side;  // side of a tile of x, and products per tile
constexpr int out_side = 4;                    // side of a tile of y
constexpr int taps = 3;
// Channels come in multiples of half a block; whole blocks fill any vector.
constexpr int64_t channel_block = 16, half_block = 8;
constexpr int64_t wide_panel = 32;  // columns of a product's panel, at most
constexpr int64_t tile_rows = 16;   // rows of a product, in one or several register tiles
// Fewer tiles than these do not amortise the transform of the weights (least_tiles), or packed
// transformed weights, which take four times the bytes (least_tiles_packed). A weight gradient
// transforms only its sums (least_tiles_to_sum).
constexpr int64_t least_tiles = 128, least_tiles_packed = 16, least_tiles_to_sum = 64;
// A block of transformed tiles should fit in a core's cache. Weights that do not fit are reused
// more by a longer block.
constexpr int64_t short_block = 32, long_block = 64, cached_weights = 128 * 128;
constexpr size_t most_sums = size_t{16} << 20;  // bytes of partial sums of a weight's gradient
constexpr int64_t wanted_items = 8, item_outputs = 64;

size_t floats(int64_t count) {
  return round_up(static_cast<size_t>(count) * sizeof(float), buffer_alignment);
}

// ---- one axis of the transforms, of numbers or vectors

constexpr float a1 = 0.625F, b1 = 1.5F;  // the points besides 0 and infinity
constexpr float a2 = a1 * a1, b2 = b1 * b1;

template <class T>
[[gnu::always_inline]] inline void transform_input(const T (&d)[side], T (&t)[side]) {
  const T e1 = d[4] - b2 * d[2], o1 = a1 * (d[3] - b2 * d[1]);
  const T e2 = d[4] - a2 * d[2], o2 = b1 * (d[3] - a2 * d[1]);
  t[0] = a2 * b2 * d[0] - (a2 + b2) * d[2] + d[4];
  t[1] = e1 + o1, t[2] = e1 - o1;
  t[3] = e2 + o2, t[4] = e2 - o2;
  t[5] = a2 * b2 * d[1] - (a2 + b2) * d[3] + d[5];
}
template <class T>
[[gnu::always_inline]] inline void transform_output(const T (&m)[side], T (&y)[out_side]) {
  const T s1 = m[1] + m[2], d1 = m[1] - m[2], s2 = m[3] + m[4], d2 = m[3] - m[4];
  y[0] = m[0] + s1 + s2;
  y[1] = a1 * d1 + b1 * d2;
  y[2] = a2 * s1 + b2 * s2;
  y[3] = a1 * a2 * d1 + b1 * b2 * d2 + m[5];
}
// Transforms a gradient of y: the transpose of transform_output.
template <class T>
[[gnu::always_inline]] inline void transform_gradient(const T (&y)[out_side], T (&t)[side]) {
  const T e1 = y[0] + a2 * y[2], o1 = a1 * y[1] + a1 * a2 * y[3];
  const T e2 = y[0] + b2 * y[2], o2 = b1 * y[1] + b1 * b2 * y[3];
  t[0] = y[0];
  t[1] = e1 + o1, t[2] = e1 - o1;
  t[3] = e2 + o2, t[4] = e2 - o2;
  t[5] = y[3];
}
// The factors are 1 / product of the differences between a point and the others.
constexpr float n0 = 1 / (a2 * b2), na = 1 / (2 * a2 * (a2 - b2)), nb = 1 / (2 * b2 * (b2 - a2));
template <class T>
[[gnu::always_inline]] inline void transform_weight(const T (&g)[taps], T (&u)[side]) {
  const T e1 = na * (g[0] + a2 * g[2]), o1 = na * a1 * g[1];
  const T e2 = nb * (g[0] + b2 * g[2]), o2 = nb * b1 * g[1];
  u[0] = n0 * g[0];
  u[1] = e1 + o1, u[2] = e1 - o1;
  u[3] = e2 + o2, u[4] = e2 - o2;
  u[5] = g[2];
}
// Transforms sums back to a gradient of the weight: the transpose of transform_weight.
template <class T>
[[gnu::always_inline]] inline void transform_sums(const T (&u)[side], T (&g)[taps]) {
  const T s1 = na * (u[1] + u[2]), d1 = na * (u[1] - u[2]);
  const T s2 = nb * (u[3] + u[4]), d2 = nb * (u[3] - u[4]);
  g[0] = n0 * u[0] + s1 + s2;
  g[1] = a1 * d1 + b1 * d2;
  g[2] = a2 * s1 + b2 * s2 + u[5];
}

// ---- the task and its scratch

// Task is y[image, h, w, made] = sum over 3 x 3 taps and `read` channels of x times weight; x and y
// are channels-last. Tiles are numbered across all images.
struct Task {
  int64_t read, made;  // channels: summed over, and of the result
  Dims in, out, padding;
  Dims tiles;  // tiles of one image, down and across
  int64_t all_tiles, block;
  int64_t panel;                     // width of a panel of the products' columns
  int64_t weight_made, weight_read;  // strides of the weight
  bool flipped;                      // the weight's taps are reversed
  int64_t read_stride, made_stride;  // between rows of channels in scratch
  // Strides between points in scratch: a block of rows plus one cache line, as a tile is written to
  // all points at once, whose lines must not fall in the same sets of the cache.
  int64_t read_point, made_point;
  int64_t parts = 1;   // weight gradient: ranges of tiles
  int64_t groups = 1;  // ranges of outputs

  // Returns the first output of a group; for the group after the last, `made`.
  int64_t output_of(int64_t group) const {
    return std::min(made, group * round_up(ceil_div(made, groups), std::max(panel, channel_block)));
  }
  int64_t blocks() const { return ceil_div(all_tiles, block); }
  bool has_whole_blocks() const { return read % channel_block == 0 && made % channel_block == 0; }
};
int64_t panel_of(int64_t columns) {
  for (const int64_t panel : {wide_panel, channel_block})
    if (columns % panel == 0) return panel;
  return half_block;
}

// Returns the stride between rows of channels. A product reads the same column of tile_rows rows,
// whose lines must not fall in few sets of the cache; rows of one channel block are adjacent
// anyway.
int64_t row_stride(int64_t channels) {
  return channels <= channel_block ? channels : channels + channel_block;
}

Task task_of(const Convolution& conv) {
  const bool back = conv.kind == Convolution::Kind::input_gradient;
  Task task;
  task.read = back ? conv.outputs : conv.channels;
  task.made = back ? conv.channels : conv.outputs;
  task.in = back ? conv.out : conv.in;
  task.out = back ? conv.in : conv.out;
  task.padding = conv.padding;
  if (back) task.padding = {taps - 1 - conv.padding[0], taps - 1 - conv.padding[1]};
  task.tiles = {ceil_div(task.out[0], out_side), ceil_div(task.out[1], out_side)};
  task.all_tiles = conv.batch * task.tiles[0] * task.tiles[1];
  task.weight_made = back ? taps * taps : conv.channels * taps * taps;
  task.weight_read = back ? conv.channels * taps * taps : taps * taps;
  task.flipped = back;
  task.read_stride = row_stride(task.read);
  task.made_stride = row_stride(task.made);
  task.block = task.read * task.made > cached_weights ? long_block : short_block;
  task.read_point = task.block * task.read_stride + channel_block;
  task.made_point = task.block * task.made_stride + channel_block;
  const bool sums_weight = conv.kind == Convolution::Kind::weight_gradient;
  task.panel = panel_of(sums_weight ? task.read : task.made);
  if (sums_weight) {
    const size_t sums = floats(points * task.made * task.read_stride);
    task.groups = std::clamp<int64_t>(task.made / item_outputs, 1, wanted_items);
    task.parts = std::clamp<int64_t>(static_cast<int64_t>(most_sums / sums), 1,
                                     std::min(wanted_items / task.groups, task.blocks()));
  }
  return task;
}

// Threads share the transformed weights, unless a kernel has them packed, or a weight gradient's
// sums of each part. Each thread has its transformed tiles, its products or transformed gradient of
// y, and a row of zeros.
struct Scratch {
  size_t shared, tiles, products, zeros;
  size_t of_thread() const { return tiles + products + zeros; }
};
Scratch scratch_of(const Convolution& conv, const Task& task) {
  const bool sums = conv.kind == Convolution::Kind::weight_gradient;
  const int64_t shared = sums                 ? task.parts * points * task.made * task.read_stride
                         : conv.packed_weight ? 0
                                              : points * task.read * task.made;
  return {floats(shared), floats(points * task.read_point), floats(points * task.made_point),
          floats(task.read_stride)};
}

struct Job {
  const Task& task;
  const float *x, *other;  // other: the weight, or the gradient of y
  const float* weights;    // transformed weights, in `shared` or packed
  float* result;
  float *shared, *tiles, *products, *zeros;
};

// ---- for one instruction set

template <int vector_bytes>
struct Machine {
  using Vector = VectorOf<float, vector_bytes>;
  static constexpr int lanes = vector_bytes / static_cast<int>(sizeof(float));

  [[gnu::always_inline]] static inline Vector load(const float* from) {
    return *reinterpret_cast<const Vector*>(from);
  }
  [[gnu::always_inline]] static inline void store(float* to, Vector value) {
    *reinterpret_cast<Vector*>(to) = value;
  }

  // Computes c[rows, panel] (+)= sum over depth of a[rows, depth] b[depth, panel].
  template <int64_t panel>
  [[gnu::always_inline]] static inline void tile(int64_t rows, const float* a, int64_t a_row,
                                                 int64_t a_depth, const float* b, int64_t b_depth,
                                                 float* c, int64_t c_row, int64_t depth,
                                                 bool first) {
    constexpr int across = static_cast<int>(panel) / lanes;
    constexpr int vectors = std::min(across, 2), registers = lanes == 16 ? 16 : 8;
    constexpr int high = registers / vectors;
    for (int64_t i0 = 0; i0 < rows; i0 += high)
      for (int j0 = 0; j0 < across; j0 += vectors) {
        alignas(vector_bytes) Vector sums[high][vectors];
#pragma GCC unroll 16
        for (int i = 0; i < high; ++i)
#pragma GCC unroll 4
          for (int j = 0; j < vectors; ++j)
            sums[i][j] = first ? Vector{} : load(c + (i0 + i) * c_row + (j0 + j) * lanes);
        const float *left = a + i0 * a_row, *right = b + j0 * lanes;
        for (int64_t d = 0; d < depth; ++d) {
          alignas(vector_bytes) Vector columns[vectors];
#pragma GCC unroll 4
          for (int j = 0; j < vectors; ++j) columns[j] = load(right + j * lanes);
#pragma GCC unroll 16
          for (int i = 0; i < high; ++i)
#pragma GCC unroll 4
            for (int j = 0; j < vectors; ++j) sums[i][j] += left[i * a_row] * columns[j];
          left += a_depth;
          right += b_depth;
        }
#pragma GCC unroll 16
        for (int i = 0; i < high; ++i)
#pragma GCC unroll 4
          for (int j = 0; j < vectors; ++j)
            store(c + (i0 + i) * c_row + (j0 + j) * lanes, sums[i][j]);
      }
  }

  // Place is the image of a tile, and its first row and column in y.
  struct Place {
    int64_t image, top, left;
  };
  [[gnu::always_inline]] static inline Place place_of(const Task& task, int64_t index) {
    const int64_t of_image = task.tiles[0] * task.tiles[1];
    return {index / of_image, index % of_image / task.tiles[1] * out_side,
            index % task.tiles[1] * out_side};
  }
  // Sets `at` to a tile's elements in an image; elements outside of the image are at `zeros`.
  template <int extent>
  [[gnu::always_inline]] static inline void find_elements(const float* image, const Dims& size,
                                                          int64_t top, int64_t left,
                                                          int64_t channels, const float* zeros,
                                                          const float* (&at)[extent][extent]) {
    for (int i = 0; i < extent; ++i)
      for (int j = 0; j < extent; ++j) {
        const int64_t h = top + i, w = left + j;
        const bool inside = h >= 0 && h < size[0] && w >= 0 && w < size[1];
        at[i][j] = inside ? image + (h * size[1] + w) * channels : zeros;
      }
  }

  // Transforms the tiles of x from `first` on to [point][tile][channel].
  [[gnu::always_inline]] static inline void transform_tiles(const Job& job, int64_t first,
                                                            int64_t count) {
    const Task& task = job.task;
    for (int64_t t = 0; t < count; ++t) {
      const Place place = place_of(task, first + t);
      const float* at[side][side];
      find_elements(job.x + place.image * task.in[0] * task.in[1] * task.read, task.in,
                    place.top - task.padding[0], place.left - task.padding[1], task.read, job.zeros,
                    at);
      for (int64_t c = 0; c < task.read; c += lanes) {
        alignas(vector_bytes) Vector half[side][side];
        for (int j = 0; j < side; ++j) {
          alignas(vector_bytes) Vector d[side], u[side];
#pragma GCC unroll 6
          for (int i = 0; i < side; ++i) d[i] = load(at[i][j] + c);
          transform_input(d, u);
#pragma GCC unroll 6
          for (int i = 0; i < side; ++i) half[i][j] = u[i];
        }
        for (int i = 0; i < side; ++i) {
          alignas(vector_bytes) Vector u[side];
          transform_input(half[i], u);
#pragma GCC unroll 6
          for (int j = 0; j < side; ++j)
            store(job.tiles + (i * side + j) * task.read_point + t * task.read_stride + c, u[j]);
        }
      }
    }
  }

  // ---- forward, and the gradient of x

  // Loads elements that are `stride` apart.
  [[gnu::always_inline]] static inline Vector gathered(const float* from, int64_t stride) {
    float elements[lanes];
    for (int lane = 0; lane < lanes; ++lane) elements[lane] = from[lane * stride];
    return load(elements);
  }

  // Transforms the weights of channels [begin, end) of y, multiples of channel_block, to
  // [point][panel][read][channel].
  [[gnu::always_inline]] static inline void transform_weights(const Job& job, int64_t begin,
                                                              int64_t end) {
    const Task& task = job.task;
    const int64_t panel = task.panel, panels = task.made / panel;
    for (int64_t made = begin; made < end; made += lanes)
      for (int64_t read = 0; read < task.read; ++read) {
        alignas(vector_bytes) Vector half[side][taps];
        for (int j = 0; j < taps; ++j) {
          alignas(vector_bytes) Vector g[taps], u[side];
          for (int i = 0; i < taps; ++i) {
            const int tap = task.flipped ? taps * taps - 1 - i * taps - j : i * taps + j;
            g[i] = gathered(job.other + made * task.weight_made + read * task.weight_read + tap,
                            task.weight_made);
          }
          transform_weight(g, u);
#pragma GCC unroll 6
          for (int i = 0; i < side; ++i) half[i][j] = u[i];
        }
        for (int i = 0; i < side; ++i) {
          alignas(vector_bytes) Vector u[side];
          transform_weight(half[i], u);
          for (int j = 0; j < side; ++j)
            store(job.shared +
                      (((i * side + j) * panels + made / panel) * task.read + read) * panel +
                      made % panel,
                  u[j]);
        }
      }
  }

  // Multiplies tiles by the weights of outputs [from, until).
  template <int64_t panel>
  [[gnu::always_inline]] static inline void multiply(const Job& job, int64_t count, int64_t from,
                                                     int64_t until) {
    const Task& task = job.task;
    const int64_t panels = task.made / panel;
    for (int point = 0; point < points; ++point)
      for (int64_t p = from / panel; p < until / panel; ++p)
        for (int64_t t = 0; t < count; t += tile_rows)
          tile<panel>(tile_rows, job.tiles + point * task.read_point + t * task.read_stride,
                      task.read_stride, 1, job.weights + (point * panels + p) * task.read * panel,
                      panel,
                      job.products + point * task.made_point + t * task.made_stride + p * panel,
                      task.made_stride, task.read, true);
  }

  [[gnu::always_inline]] static inline void write_tiles(const Job& job, int64_t first,
                                                        int64_t count, int64_t from,
                                                        int64_t until) {
    const Task& task = job.task;
    for (int64_t t = 0; t < count; ++t) {
      const Place place = place_of(task, first + t);
      float* image = job.result + place.image * task.out[0] * task.out[1] * task.made;
      const int64_t rows = std::min<int64_t>(out_side, task.out[0] - place.top);
      const int64_t columns = std::min<int64_t>(out_side, task.out[1] - place.left);
      for (int64_t c = from; c < until; c += lanes) {
        alignas(vector_bytes) Vector half[out_side][side];
        for (int j = 0; j < side; ++j) {
          alignas(vector_bytes) Vector m[side], y[out_side];
#pragma GCC unroll 6
          for (int i = 0; i < side; ++i)
            m[i] = load(job.products + (i * side + j) * task.made_point + t * task.made_stride + c);
          transform_output(m, y);
#pragma GCC unroll 4
          for (int i = 0; i < out_side; ++i) half[i][j] = y[i];
        }
        for (int64_t i = 0; i < rows; ++i) {
          alignas(vector_bytes) Vector y[out_side];
          transform_output(half[i], y);
          for (int64_t j = 0; j < columns; ++j)
            store(image + ((place.top + i) * task.out[1] + place.left + j) * task.made + c, y[j]);
        }
      }
    }
  }

  // Computes items [begin, end): a group of outputs of a block of tiles.
  [[gnu::always_inline]] static inline void convolve(const Job& job, int64_t begin, int64_t end) {
    const Task& task = job.task;
    std::fill_n(job.zeros, task.read, 0.0F);
    for (int64_t item = begin; item < end; ++item) {
      const int64_t first = item / task.groups * task.block;
      const int64_t count = std::min(task.block, task.all_tiles - first);
      const int64_t from = task.output_of(item % task.groups);
      const int64_t until = task.output_of(item % task.groups + 1);
      if (item == begin || item % task.groups == 0) transform_tiles(job, first, count);
      if (task.panel == wide_panel)
        multiply<wide_panel>(job, count, from, until);
      else if (task.panel == channel_block)
        multiply<channel_block>(job, count, from, until);
      else if constexpr (lanes <= half_block)
        multiply<half_block>(job, count, from, until);
      write_tiles(job, first, count, from, until);
    }
  }

  // ---- the gradient of the weight

  // Transforms outputs [from, until) of dy's tiles to [point][tile][output]; elements outside dy
  // are zero.
  [[gnu::always_inline]] static inline void transform_gradients(const Job& job, int64_t first,
                                                                int64_t count, int64_t from,
                                                                int64_t until) {
    const Task& task = job.task;
    for (int64_t t = 0; t < count; ++t) {
      const Place place = place_of(task, first + t);
      const float* at[out_side][out_side];
      find_elements(job.other + place.image * task.out[0] * task.out[1] * task.made, task.out,
                    place.top, place.left, task.made, nullptr, at);
      for (int64_t c = from; c < until; c += lanes) {
        alignas(vector_bytes) Vector half[side][out_side];
        for (int j = 0; j < out_side; ++j) {
          alignas(vector_bytes) Vector y[out_side], u[side];
          for (int i = 0; i < out_side; ++i)
            y[i] = at[i][j] == nullptr ? Vector{} : load(at[i][j] + c);
          transform_gradient(y, u);
#pragma GCC unroll 6
          for (int i = 0; i < side; ++i) half[i][j] = u[i];
        }
        for (int i = 0; i < side; ++i) {
          alignas(vector_bytes) Vector u[side];
          transform_gradient(half[i], u);
          for (int j = 0; j < side; ++j)
            store(job.products + (i * side + j) * task.made_point + t * task.made_stride + c - from,
                  u[j]);
        }
      }
    }
  }

  template <int64_t panel>
  [[gnu::always_inline]] static inline void add_products(const Job& job, int64_t count,
                                                         int64_t from, int64_t until, float* sums,
                                                         bool first) {
    const Task& task = job.task;
    for (int point = 0; point < points; ++point)
      for (int64_t c = 0; c < task.read; c += panel)
        for (int64_t o = from; o < until; o += tile_rows)
          tile<panel>(std::min(tile_rows, until - o),
                      job.products + point * task.made_point + o - from, 1, task.made_stride,
                      job.tiles + point * task.read_point + c, task.read_stride,
                      sums + (point * task.made + o) * task.read_stride + c, task.read_stride,
                      count, first);
  }

  // Computes sums[point][output][channel] over one range of tiles (a part) for one range of
  // outputs.
  [[gnu::always_inline]] static inline void sum_item(const Job& job, int64_t item) {
    const Task& task = job.task;
    const int64_t part = item / task.groups, group = item % task.groups;
    const int64_t from = task.output_of(group), until = task.output_of(group + 1);
    float* sums = job.shared + part * points * task.made * task.read_stride;
    const int64_t begin = task.blocks() * part / task.parts;
    const int64_t end = task.blocks() * (part + 1) / task.parts;
    for (int64_t block = begin; block < end && from < until; ++block) {
      const int64_t first = block * task.block;
      const int64_t count = std::min(task.block, task.all_tiles - first);
      transform_tiles(job, first, count);
      transform_gradients(job, first, count, from, until);
      if (task.panel == wide_panel)
        add_products<wide_panel>(job, count, from, until, sums, block == begin);
      else if (task.panel == channel_block)
        add_products<channel_block>(job, count, from, until, sums, block == begin);
      else if constexpr (lanes <= half_block)
        add_products<half_block>(job, count, from, until, sums, block == begin);
    }
  }
  [[gnu::always_inline]] static inline void sum(const Job& job, int64_t begin, int64_t end) {
    std::fill_n(job.zeros, job.task.read, 0.0F);
    for (int64_t item = begin; item < end; ++item) sum_item(job, item);
  }

  // Computes the gradient of outputs [begin, end) from the sums of all parts.
  [[gnu::always_inline]] static inline void write_weights(const Job& job, int64_t begin,
                                                          int64_t end) {
    const Task& task = job.task;
    for (int64_t o = begin; o < end; ++o)
      for (int64_t c = 0; c < task.read; c += lanes) {
        alignas(vector_bytes) Vector half[taps][side];
        for (int j = 0; j < side; ++j) {
          alignas(vector_bytes) Vector u[side], g[taps];
          for (int i = 0; i < side; ++i) {
            u[i] = Vector{};
            for (int64_t part = 0; part < task.parts; ++part)
              u[i] += load(job.shared +
                           ((part * points + i * side + j) * task.made + o) * task.read_stride + c);
          }
          transform_sums(u, g);
#pragma GCC unroll 3
          for (int i = 0; i < taps; ++i) half[i][j] = g[i];
        }
        for (int i = 0; i < taps; ++i) {
          alignas(vector_bytes) Vector g[taps];
          transform_sums(half[i], g);
          for (int j = 0; j < taps; ++j)
            for (int lane = 0; lane < lanes; ++lane)
              job.result[o * task.weight_made + (c + lane) * task.weight_read + i * taps + j] =
                  g[j][lane];
        }
      }
  }
};

enum class Phase { transform_weights, convolve, sum, write_weights };
template <int vector_bytes>
struct Body {
  [[gnu::always_inline]] static inline void run(Phase phase, const Job* job, int64_t begin,
                                                int64_t end) {
    using M = Machine<vector_bytes>;
    switch (phase) {
      case Phase::transform_weights:
        return M::transform_weights(*job, begin, end);
      case Phase::convolve:
        return M::convolve(*job, begin, end);
      case Phase::sum:
        return M::sum(*job, begin, end);
      case Phase::write_weights:
        return M::write_weights(*job, begin, end);
    }
  }
};
void run_phase(Phase phase, const Job& job, int64_t begin, int64_t end) {
  using Runner = void (*)(Phase, const Job*, int64_t, int64_t);
  const Runner whole = run_avx512<Body<64>>, halves = run_avx2<Body<32>>;
  const Runner widest = job.task.has_whole_blocks() ? whole : halves;
  best_of<Runner>(widest, halves, run_baseline<Body<16>>)(phase, &job, begin, end);
}
}  // namespace

bool winograd_can(const Convolution& conv) {
  auto all = [](const Dims& dims, int64_t value) { return std::ranges::count(dims, value) == 2; };
  const bool whole = conv.channels % half_block == 0 && conv.outputs % half_block == 0;
  const bool some = conv.batch * conv.in[0] * conv.in[1] * conv.out[0] * conv.out[1] > 0;
  return conv.dtype == DType::f32 && conv.groups == 1 && all(conv.kernel, taps) &&
         all(conv.stride, 1) && all(conv.dilation, 1) && std::ranges::max(conv.padding) < taps &&
         whole && some;
}

bool winograd_pays(const Convolution& conv) {
  const bool sums = conv.kind == Convolution::Kind::weight_gradient;
  if (!winograd_can(conv)) return false;
  const Task task = task_of(conv);
  const int64_t least = sums                 ? least_tiles_to_sum
                        : conv.packed_weight ? least_tiles_packed
                                             : least_tiles;
  // Half blocks were measured in vectors of eight and sixteen alone.
  return task.all_tiles >= least && (task.has_whole_blocks() || isa() >= Isa::avx2);
}

size_t winograd_workspace(const Convolution& conv, int threads) {
  const Scratch scratch = scratch_of(conv, task_of(conv));
  return scratch.shared + static_cast<size_t>(threads) * scratch.of_thread();
}

size_t winograd_packed_bytes(const Convolution& conv) {
  return floats(points * conv.channels * conv.outputs);
}

void winograd_pack_weight(const Convolution& conv, const void* weight, void* packed) {
  const Task task = task_of(conv);
  parallel_for(ceil_div(task.made, channel_block), [&](int64_t begin, int64_t end) {
    const Job job{.task = task,
                  .other = static_cast<const float*>(weight),
                  .shared = static_cast<float*>(packed)};
    run_phase(Phase::transform_weights, job, begin * channel_block,
              std::min(task.made, end * channel_block));
  });
}

void winograd_convolve(const Convolution& conv, const void* a, const void* b, void* result,
                       void* workspace, int threads) {
  Task task = task_of(conv);
  const Scratch scratch = scratch_of(conv, task);
  auto* bytes = static_cast<std::byte*>(workspace);
  // Runs a phase on positions [0, count), divided at multiples of `unit`; each thread has scratch
  // of its own.
  auto in_parallel = [&](Phase phase, int64_t count, int64_t unit) {
    const int64_t pieces = ceil_div(count, unit), parts = std::min<int64_t>(threads, pieces);
    parallel_for(parts, [&](int64_t begin, int64_t end) {
      for (int64_t part = begin; part < end; ++part) {
        std::byte* own = bytes + scratch.shared + static_cast<size_t>(part) * scratch.of_thread();
        const Job job{task,
                      static_cast<const float*>(a),
                      static_cast<const float*>(b),
                      static_cast<const float*>(conv.packed_weight ? b : workspace),
                      static_cast<float*>(result),
                      reinterpret_cast<float*>(bytes),
                      reinterpret_cast<float*>(own),
                      reinterpret_cast<float*>(own + scratch.tiles),
                      reinterpret_cast<float*>(own + scratch.tiles + scratch.products)};
        run_phase(phase, job, std::min(count, pieces * part / parts * unit),
                  std::min(count, pieces * (part + 1) / parts * unit));
      }
    });
  };
  if (conv.kind == Convolution::Kind::weight_gradient) {
    in_parallel(Phase::sum, task.parts * task.groups, 1);
    in_parallel(Phase::write_weights, task.made, 1);
    return;
  }
  // If the threads would get unequal numbers of blocks, each block is divided by outputs (groups).
  if (task.blocks() % threads != 0 && task.blocks() < wanted_items * threads)
    task.groups = std::min<int64_t>(threads, ceil_div(task.made, task.panel));
  if (!conv.packed_weight) in_parallel(Phase::transform_weights, task.made, channel_block);
  in_parallel(Phase::convolve, task.blocks() * task.groups, 1);
}
}  // namespace weft::cpu
