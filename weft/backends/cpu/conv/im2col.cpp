#include "weft/backends/cpu/conv/im2col.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "weft/backends/cpu/gemm/contraction.h"
#include "weft/base/host/parallel.h"
#include "weft/base/memory/alignment.h"
#include "weft/base/numbers/rounding.h"

namespace weft::cpu {
namespace {

// Returns the type of windows: for the partial sums of an input gradient it is wider than float16
// and bfloat16, which would round them.
DType window_dtype(const Convolution& conv) {
  const bool sums = conv.kind == Convolution::Kind::input_gradient && is_float(conv.dtype);
  return sums ? accumulator(conv.dtype) : conv.dtype;
}

// Sizes serve every part below. Windows are rows [groups][image, oh, ow][kh, kw, channel], weights
// [groups][kh, kw, channel][output].
struct Sizes {
  int64_t group_channels, group_outputs, depth, pixels;  // depth: elements of a window in one group
  int64_t images;                                        // images whose windows exist at a time

  explicit Sizes(const Convolution& conv)
      : group_channels(conv.channels / conv.groups),
        group_outputs(conv.outputs / conv.groups),
        depth(group_channels * conv.kernel[0] * conv.kernel[1]),
        pixels(conv.out[0] * conv.out[1]),
        images(std::max<int64_t>(1, conv.batch)) {
    if (conv.kind == Convolution::Kind::weight_gradient) return;  // sums over all images at once
    const int64_t bytes_each = std::max<int64_t>(
        1, conv.groups * pixels * depth * static_cast<int64_t>(size_of(window_dtype(conv))));
    images = std::clamp<int64_t>((int64_t{8} << 20) / bytes_each, 1, images);
  }
  int64_t rows() const { return images * pixels; }
};

// Calls f with an unsigned integer of the element's size, as elements are only moved.
template <class F>
void with_element(DType dtype, F&& f) {
  switch (size_of(dtype)) {
    case 8:
      return f(uint64_t{});
    case 4:
      return f(uint32_t{});
    case 2:
      return f(uint16_t{});
    default:
      return f(uint8_t{});
  }
}

template <class T>
void write_windows(const Convolution& conv, const Sizes& sizes, const T* x, int64_t images,
                   T* windows) {
  const int64_t runs = conv.groups * images * conv.out[0];
  parallel_for(runs, [&](int64_t begin, int64_t end) {
    for (int64_t run = begin; run < end; ++run) {
      const int64_t oh = run % conv.out[0], image = run / conv.out[0] % images;
      const int64_t group = run / conv.out[0] / images;
      T* to =
          windows + (group * sizes.rows() + image * sizes.pixels + oh * conv.out[1]) * sizes.depth;
      const T* from =
          x + image * conv.in[0] * conv.in[1] * conv.channels + group * sizes.group_channels;
      for (int64_t ow = 0; ow < conv.out[1]; ++ow)
        for (int64_t kh = 0; kh < conv.kernel[0]; ++kh) {
          const int64_t h = oh * conv.stride[0] + kh * conv.dilation[0] - conv.padding[0];
          for (int64_t kw = 0; kw < conv.kernel[1]; ++kw, to += sizes.group_channels) {
            const int64_t w = ow * conv.stride[1] + kw * conv.dilation[1] - conv.padding[1];
            if (h >= 0 && h < conv.in[0] && w >= 0 && w < conv.in[1])
              std::copy_n(from + (h * conv.in[1] + w) * conv.channels, sizes.group_channels, to);
            else
              std::fill_n(to, sizes.group_channels, T{});
          }
        }
    }
  });
}

// Repacks weight[group, output, channel, kh, kw] to packed[group, kh, kw, channel, output]; back
// from `packed` to `weight` unless Plain is const.
template <class Plain, class Packed>
void repack_weight(const Convolution& conv, const Sizes& sizes, Plain* weight, Packed* packed) {
  const int64_t taps = conv.kernel[0] * conv.kernel[1];
  for (int64_t o = 0; o < conv.outputs; ++o)
    for (int64_t c = 0; c < sizes.group_channels; ++c)
      for (int64_t tap = 0; tap < taps; ++tap) {
        Plain& plain = weight[(o * sizes.group_channels + c) * taps + tap];
        const int64_t group = o / sizes.group_outputs, within = o % sizes.group_outputs;
        Packed& moved =
            packed[(group * sizes.depth + tap * sizes.group_channels + c) * sizes.group_outputs +
                   within];
        if constexpr (std::is_const_v<Plain>)
          moved = plain;
        else
          plain = moved;
      }
}

// Calls f(window's pixel, tap) for the windows that cover pixel (h, w), in a fixed order.
template <class F>
void for_each_window_over(const Convolution& conv, int64_t h, int64_t w, F&& f) {
  for (int64_t kh = 0; kh < conv.kernel[0]; ++kh) {
    const int64_t top = h + conv.padding[0] - kh * conv.dilation[0];
    if (top < 0 || top % conv.stride[0] != 0 || top / conv.stride[0] >= conv.out[0]) continue;
    for (int64_t kw = 0; kw < conv.kernel[1]; ++kw) {
      const int64_t left = w + conv.padding[1] - kw * conv.dilation[1];
      if (left < 0 || left % conv.stride[1] != 0 || left / conv.stride[1] >= conv.out[1]) continue;
      f(top / conv.stride[0] * conv.out[1] + left / conv.stride[1], kh * conv.kernel[1] + kw);
    }
  }
}

// Sums over the windows of `images` images for each element of x (col2im), a block of channels at a
// time.
template <class Sum, class Load, class Store>
void sum_windows(const Convolution& conv, const Sizes& sizes, int64_t images, Load&& load,
                 Store&& store) {
  constexpr int64_t block = 64;
  const int64_t blocks = ceil_div(sizes.group_channels, block);
  parallel_for(images * conv.in[0], [&](int64_t begin, int64_t end) {
    for (int64_t run = begin; run < end; ++run)
      for (int64_t w = 0; w < conv.in[1]; ++w)
        for (int64_t i = 0; i < conv.groups * blocks; ++i) {
          const int64_t group = i / blocks, first = i % blocks * block;
          const int64_t width = std::min(block, sizes.group_channels - first);
          const int64_t rows = group * sizes.rows() + run / conv.in[0] * sizes.pixels;
          Sum sums[block] = {};
          for_each_window_over(conv, run % conv.in[0], w, [&](int64_t pixel, int64_t tap) {
            const int64_t at = (rows + pixel) * sizes.depth + tap * sizes.group_channels + first;
            for (int64_t c = 0; c < width; ++c) sums[c] += load(at + c);
          });
          const int64_t to =
              (run * conv.in[1] + w) * conv.channels + group * sizes.group_channels + first;
          for (int64_t c = 0; c < width; ++c) store(to + c, sums[c]);
        }
  });
}
void sum_windows(const Convolution& conv, const Sizes& sizes, int64_t images, const void* windows,
                 void* x) {
  if (conv.dtype == DType::f64) {
    auto* from = static_cast<const double*>(windows);
    auto* to = static_cast<double*>(x);
    sum_windows<double>(
        conv, sizes, images, [&](int64_t at) { return from[at]; },
        [&](int64_t at, double value) { to[at] = value; });
  } else if (is_float(conv.dtype)) {
    auto* from = static_cast<const float*>(windows);
    sum_windows<double>(
        conv, sizes, images, [&](int64_t at) { return from[at]; },
        [&](int64_t at, double value) { store(x, conv.result_dtype(), at, value); });
  } else {
    sum_windows<uint64_t>(
        conv, sizes, images,
        [&](int64_t at) { return static_cast<uint64_t>(load_int(windows, conv.dtype, at)); },
        [&](int64_t at, uint64_t value) {
          store_int(x, conv.dtype, at, static_cast<int64_t>(value));
        });
  }
}

// Returns the product over `images` images: forward: windows x weight -> y; input_gradient: dy x
// weight' -> windows; weight_gradient: windows' x dy -> weight.
Contraction product(const Convolution& conv, const Sizes& sizes, int64_t images) {
  const MatrixStrides windows{{sizes.rows() * sizes.depth}, sizes.depth, 1};
  const MatrixStrides weight{{sizes.depth * sizes.group_outputs}, sizes.group_outputs, 1};
  const MatrixStrides y{{sizes.group_outputs}, conv.outputs, 1};
  auto transposed = [](MatrixStrides strides) {
    std::swap(strides.row, strides.column);
    return strides;
  };
  const int64_t rows = images * sizes.pixels;
  const DType dtype = window_dtype(conv);
  const bool forward = conv.kind == Convolution::Kind::forward;
  Contraction task{.a_dtype = dtype,
                   .b_dtype = forward ? conv.weight_dtype : dtype,
                   .dtype = conv.wide ? conv.result_dtype() : dtype,
                   .batch = {conv.groups}};
  switch (conv.kind) {
    case Convolution::Kind::forward:
      task.m = rows, task.n = sizes.group_outputs, task.k = sizes.depth;
      task.a = windows, task.b = weight, task.result = y;
      break;
    case Convolution::Kind::input_gradient:
      task.dtype = dtype;
      task.m = rows, task.n = sizes.depth, task.k = sizes.group_outputs;
      task.a = y, task.b = transposed(weight), task.result = windows;
      break;
    case Convolution::Kind::weight_gradient:
      task.m = sizes.depth, task.n = sizes.group_outputs, task.k = rows;
      task.a = transposed(windows), task.b = y, task.result = weight;
      break;
  }
  return task;
}

size_t windows_bytes(const Convolution& conv, const Sizes& sizes) {
  return aligned(static_cast<size_t>(conv.groups * sizes.rows() * sizes.depth) *
                 size_of(window_dtype(conv)));
}
size_t weight_bytes(const Convolution& conv) {
  if (conv.packed_weight) return 0;
  return aligned(
      static_cast<size_t>(element_count(conv.weight_shape())) *
      size_of(conv.kind == Convolution::Kind::weight_gradient ? conv.result_dtype() : conv.dtype));
}

// WidenedBytes are the sizes of operands widened to the type of windows; 0 where that is their own.
struct WidenedBytes {
  size_t weight = 0, dy = 0;
  WidenedBytes(const Convolution& conv, const Sizes& sizes) {
    const DType dtype = window_dtype(conv);
    if (dtype == conv.dtype) return;
    weight = aligned(static_cast<size_t>(element_count(conv.weight_shape())) * size_of(dtype));
    dy = aligned(static_cast<size_t>(sizes.rows() * conv.outputs) * size_of(dtype));
  }
};
// Returns `count` elements in the type of windows: `from` itself, or a widened copy in `to`.
const void* widened(const Convolution& conv, const void* from, std::byte* to, int64_t count) {
  const DType dtype = window_dtype(conv);
  if (dtype == conv.dtype) return from;
  parallel_for(count, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) store(to, dtype, i, load(from, conv.dtype, i));
  });
  return to;
}
}  // namespace

size_t im2col_workspace(const Convolution& conv, int threads) {
  const Sizes sizes(conv);
  size_t scratch = contraction_workspace(product(conv, sizes, sizes.images), threads);
  if (const int64_t last = conv.batch % sizes.images; last > 0)
    scratch = std::max(scratch, contraction_workspace(product(conv, sizes, last), threads));
  const WidenedBytes more(conv, sizes);
  return windows_bytes(conv, sizes) + weight_bytes(conv) + more.weight + more.dy + scratch;
}

void im2col_pack_weight(const Convolution& conv, const void* weight, void* packed) {
  with_element(conv.weight_dtype, [&]<class T>(T) {
    repack_weight(conv, Sizes(conv), static_cast<const T*>(weight), static_cast<T*>(packed));
  });
}

void im2col_convolve(const Convolution& conv, const void* a, const void* b, void* result,
                     void* workspace, int threads) {
  const Sizes sizes(conv);
  auto* windows = static_cast<std::byte*>(workspace);
  std::byte* weight = windows + windows_bytes(conv, sizes);
  const WidenedBytes more(conv, sizes);
  std::byte* wide_weight = weight + weight_bytes(conv);
  std::byte* wide_dy = wide_weight + more.weight;
  std::byte* scratch = wide_dy + more.dy;
  with_element(conv.dtype, [&]<class T>(T) {
    auto at = [](const void* base, int64_t index) {
      return const_cast<T*>(static_cast<const T*>(base)) + index;
    };
    const int64_t x_each = element_count(conv.x_shape()) / std::max<int64_t>(1, conv.batch);
    const int64_t y_each = element_count(conv.y_shape()) / std::max<int64_t>(1, conv.batch);
    if (conv.kind == Convolution::Kind::weight_gradient) {
      write_windows(conv, sizes, at(a, 0), conv.batch, at(windows, 0));
      contract(product(conv, sizes, conv.batch), windows, b, weight, scratch, threads);
      return with_element(conv.result_dtype(), [&]<class Result>(Result) {
        repack_weight(conv, sizes, static_cast<Result*>(result),
                      reinterpret_cast<const Result*>(weight));
      });
    }
    auto result_at = [&](int64_t index) {
      return static_cast<std::byte*>(result) +
             index * static_cast<int64_t>(size_of(conv.result_dtype()));
    };
    if (!conv.packed_weight) repack_weight(conv, sizes, static_cast<const T*>(b), at(weight, 0));
    const void* packed = conv.packed_weight ? b : weight;
    const void* factor = widened(conv, packed, wide_weight, element_count(conv.weight_shape()));
    for (int64_t first = 0; first < conv.batch; first += sizes.images) {
      const int64_t images = std::min(sizes.images, conv.batch - first);
      const Contraction task = product(conv, sizes, images);
      if (conv.kind == Convolution::Kind::forward) {
        write_windows(conv, sizes, at(a, first * x_each), images, at(windows, 0));
        contract(task, windows, packed, result_at(first * y_each), scratch, threads);
      } else {
        const void* dy = widened(conv, at(a, first * y_each), wide_dy, images * y_each);
        contract(task, dy, factor, windows, scratch, threads);
        sum_windows(conv, sizes, images, windows, result_at(first * x_each));
      }
    }
  });
}
}  // namespace weft::cpu
