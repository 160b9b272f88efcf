// Pooling over windows of channels-last activations, in blocks of channels: one block of one pixel is
// a vector loop. Results do not depend on the number of threads.
#include <algorithm>
#include <array>
#include <cstring>

#include "weft/backends/cpu/elements.h"
#include "weft/backends/cpu/kernels.h"
#include "weft/base/buffer.h"
#include "weft/base/parallel.h"

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3")  // vectorises the loops over channels
#endif

namespace weft::cpu {
namespace {
const Dims channels_last{0, 2, 3, 1};
constexpr int64_t block = 64;  // channels

struct Windows {
  int64_t images, channels;
  Dims in, out, kernel, stride, padding;
  bool count_padding = false;

  Windows(const Node& node, const Shape& x, const Shape& y)
      : images(x[0]),
        channels(x[1]),
        in{x[2], x[3]},
        out{y[2], y[3]},
        kernel(node.attrs.dims("kernel")),
        stride(node.attrs.dims("stride")),
        padding(node.attrs.dims("padding")),
        count_padding(node.attrs.has("count_include_pad") &&
                      node.attrs.integer("count_include_pad") != 0) {}

  int64_t blocks() const { return (channels + block - 1) / block; }
  int64_t width(int64_t first) const { return std::min(block, channels - first); }

  // The part [first, last) of the window `at` along axis `s` that is not padding.
  struct Range { int64_t first, last; };
  Range inside(int64_t at, int s) const {
    const int64_t start = at * stride[s] - padding[s];
    return {std::max<int64_t>(0, start), std::min(in[s], start + kernel[s])};
  }
  // The windows [first, last) along axis `s` that see element `at`.
  Range seeing(int64_t at, int s) const {
    const int64_t reach = at + padding[s];
    const int64_t first = reach < kernel[s] ? 0 : (reach - kernel[s]) / stride[s] + 1;
    return {first, std::min(out[s], reach / stride[s] + 1)};
  }
  double divisor(Range h, Range w) const {
    return static_cast<double>(count_padding ? kernel[0] * kernel[1]
                                             : (h.last - h.first) * (w.last - w.first));
  }
};

// Calls body(row, first channel, width) for every row of `rows` and block of channels.
template <class F>
void for_each_block(const Windows& windows, int64_t rows, F&& body) {
  const int64_t blocks = windows.blocks();
  parallel_for(rows * blocks, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t first = i % blocks * block;
      body(i / blocks, first, windows.width(first));
    }
  });
}

// NaN exceeds everything, and the last one wins among them, as in PyTorch.
template <class Lane>
[[gnu::always_inline]] inline bool exceeds(Lane value, Lane best) {
  return value > best || value != value;
}

template <class Element, class Lane>
void max_pool(const Windows& windows, const Element* x, Element* y) {
  for_each_block(windows, windows.images * windows.out[0], [&](int64_t row, int64_t c, int64_t width) {
    const Element* image = x + row / windows.out[0] * windows.in[0] * windows.in[1] * windows.channels + c;
    const auto h = windows.inside(row % windows.out[0], 0);
    for (int64_t ow = 0; ow < windows.out[1]; ++ow) {
      const auto w = windows.inside(ow, 1);
      std::array<Lane, block> best;
      for (int64_t i = h.first; i < h.last; ++i)
        for (int64_t j = w.first; j < w.last; ++j) {
          const Element* from = image + (i * windows.in[1] + j) * windows.channels;
          const bool is_first = i == h.first && j == w.first;
          if (is_first)
            for (int64_t k = 0; k < width; ++k) best[k] = to_lane<Lane>(from[k]);
          else
            for (int64_t k = 0; k < width; ++k) {
              const Lane value = to_lane<Lane>(from[k]);
              best[k] = exceeds(value, best[k]) ? value : best[k];
            }
        }
      Element* to = y + (row * windows.out[1] + ow) * windows.channels + c;
      for (int64_t k = 0; k < width; ++k) to[k] = from_lane<Element>(best[k]);
    }
  });
}

// One block of channels of one image: each gradient goes to the first maximum of its window. `sums` is
// dx itself, or float scratch for 16-bit types.
template <class Element, class Lane>
void max_pool_gradient_block(const Windows& windows, const Element* x, const Element* dy, Lane* sums,
                             int64_t sums_stride, int64_t width) {
  const int64_t pixels = windows.in[0] * windows.in[1];
  for (int64_t pixel = 0; pixel < pixels; ++pixel) std::fill_n(sums + pixel * sums_stride, width, Lane{});
  std::array<Lane, block> best;
  std::array<int32_t, block> where;
  for (int64_t oh = 0; oh < windows.out[0]; ++oh)
    for (int64_t ow = 0; ow < windows.out[1]; ++ow) {
      const auto h = windows.inside(oh, 0), w = windows.inside(ow, 1);
      auto for_each_tap = [&](auto&& f) {
        int32_t tap = 0;
        for (int64_t i = h.first; i < h.last; ++i)
          for (int64_t j = w.first; j < w.last; ++j) f(i * windows.in[1] + j, tap++);
      };
      for_each_tap([&](int64_t pixel, int32_t tap) {
        const Element* from = x + pixel * windows.channels;
        for (int64_t k = 0; k < width; ++k) {
          const Lane value = to_lane<Lane>(from[k]);
          const bool better = tap == 0 || exceeds(value, best[k]);
          best[k] = better ? value : best[k];
          where[k] = better ? tap : where[k];
        }
      });
      const Element* gradient = dy + (oh * windows.out[1] + ow) * windows.channels;
      for_each_tap([&](int64_t pixel, int32_t tap) {
        Lane* to = sums + pixel * sums_stride;
        for (int64_t k = 0; k < width; ++k)
          to[k] += where[k] == tap ? to_lane<Lane>(gradient[k]) : Lane{};
      });
    }
}

size_t gradient_scratch_each(const Windows& windows) {
  const auto bytes = static_cast<size_t>(windows.in[0] * windows.in[1] * block) * sizeof(float);
  return (bytes + buffer_alignment - 1) / buffer_alignment * buffer_alignment;
}

template <class Element, class Lane>
void max_pool_gradient(const Windows& windows, const Element* x, const Element* dy, Element* dx,
                       std::byte* workspace, int threads) {
  const int64_t tasks = windows.images * windows.blocks(), parts = std::min<int64_t>(threads, tasks);
  const int64_t pixels = windows.in[0] * windows.in[1];
  auto run_task = [&](int64_t task, std::byte* scratch) {
    const int64_t image = task / windows.blocks(), c = task % windows.blocks() * block;
    const int64_t start = image * pixels * windows.channels + c, width = windows.width(c);
    const Element* gradients = dy + image * windows.out[0] * windows.out[1] * windows.channels + c;
    if constexpr (!is_narrow<Element>) {
      max_pool_gradient_block(windows, x + start, gradients, dx + start, windows.channels, width);
    } else {
      auto* sums = reinterpret_cast<Lane*>(scratch);
      max_pool_gradient_block(windows, x + start, gradients, sums, block, width);
      for (int64_t pixel = 0; pixel < pixels; ++pixel)
        for (int64_t k = 0; k < width; ++k)
          dx[start + pixel * windows.channels + k] = from_lane<Element>(sums[pixel * block + k]);
    }
  };
  parallel_for(parts, [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part)
      for (int64_t task = tasks * part / parts; task < tasks * (part + 1) / parts; ++task)
        run_task(task, workspace + static_cast<size_t>(part) * gradient_scratch_each(windows));
  });
}

template <class Element, class Lane>
void avg_pool(const Windows& windows, const Element* x, Element* y) {
  for_each_block(windows, windows.images * windows.out[0], [&](int64_t row, int64_t c, int64_t width) {
    const Element* image = x + row / windows.out[0] * windows.in[0] * windows.in[1] * windows.channels + c;
    const auto h = windows.inside(row % windows.out[0], 0);
    for (int64_t ow = 0; ow < windows.out[1]; ++ow) {
      const auto w = windows.inside(ow, 1);
      std::array<Lane, block> sums{};
      for (int64_t i = h.first; i < h.last; ++i)
        for (int64_t j = w.first; j < w.last; ++j) {
          const Element* from = image + (i * windows.in[1] + j) * windows.channels;
          for (int64_t k = 0; k < width; ++k) sums[k] += to_lane<Lane>(from[k]);
        }
      const auto divisor = static_cast<Lane>(windows.divisor(h, w));
      Element* to = y + (row * windows.out[1] + ow) * windows.channels + c;
      for (int64_t k = 0; k < width; ++k) to[k] = from_lane<Element>(sums[k] / divisor);
    }
  });
}

template <class Element, class Lane>
void avg_pool_gradient(const Windows& windows, const Element* dy, Element* dx) {
  for_each_block(windows, windows.images * windows.in[0], [&](int64_t row, int64_t c, int64_t width) {
    const Element* image =
        dy + row / windows.in[0] * windows.out[0] * windows.out[1] * windows.channels + c;
    const auto over_h = windows.seeing(row % windows.in[0], 0);
    for (int64_t w = 0; w < windows.in[1]; ++w) {
      const auto over_w = windows.seeing(w, 1);
      std::array<Lane, block> sums{};
      for (int64_t oh = over_h.first; oh < over_h.last; ++oh)
        for (int64_t ow = over_w.first; ow < over_w.last; ++ow) {
          const auto divisor =
              static_cast<Lane>(windows.divisor(windows.inside(oh, 0), windows.inside(ow, 1)));
          const Element* from = image + (oh * windows.out[1] + ow) * windows.channels;
          for (int64_t k = 0; k < width; ++k) sums[k] += to_lane<Lane>(from[k]) / divisor;
        }
      Element* to = dx + (row * windows.in[1] + w) * windows.channels + c;
      for (int64_t k = 0; k < width; ++k) to[k] = from_lane<Element>(sums[k]);
    }
  });
}

Windows windows_of(const Node& node) {
  const Shape& first = node.inputs[0].shape();
  if (node.is("max_pool_gradient")) return {node, first, node.inputs[1].shape()};
  if (node.is("avg_pool_gradient")) return {node, node.type.shape, first};
  return {node, first, node.type.shape};
}

size_t workspace_of(const Node& node, const Windows& windows, int threads) {
  const bool narrow = node.type.dtype == DType::f16 || node.type.dtype == DType::bf16;
  if (!node.is("max_pool_gradient") || !narrow) return 0;
  return gradient_scratch_each(windows) *
         static_cast<size_t>(std::min<int64_t>(threads, windows.images * windows.blocks()));
}

class PoolKernel : public Kernel {
 public:
  explicit PoolKernel(const Step& step)
      : node_(step.body.front()),
        windows_(windows_of(*node_.node())),
        inputs_(bind_inputs(step)),
        result_(bind_result(step)),
        threads_(thread_count()) {
    WEFT_ASSERT(workspace_of(*node_.node(), windows_, threads_) <= step.workspace,
                "{} plans too little workspace", step.kernel);
  }

  void run(void* const* operands, void* const* results, void* workspace) const override {
    with_float(result_.type.dtype, [&]<class Element, class Lane>(Element, Lane) {
      const auto* first = reinterpret_cast<const Element*>(inputs_[0].in(operands));
      auto* result = reinterpret_cast<Element*>(result_.out(results));
      if (node_->is("max_pool")) return max_pool<Element, Lane>(windows_, first, result);
      if (node_->is("avg_pool")) return avg_pool<Element, Lane>(windows_, first, result);
      if (node_->is("avg_pool_gradient"))
        return avg_pool_gradient<Element, Lane>(windows_, first, result);
      max_pool_gradient<Element, Lane>(
          windows_, first, reinterpret_cast<const Element*>(inputs_[1].in(operands)), result,
          static_cast<std::byte*>(workspace), threads_);
    });
  }

 private:
  Value node_;
  Windows windows_;
  std::vector<Bound> inputs_;
  Bound result_;
  int threads_;
};
}  // namespace

std::optional<KernelChoice> choose_pool(const Node& node, std::span<const Placement> operands) {
  if (!is_float(node.type.dtype)) return std::nullopt;
  return KernelChoice{.kernel = "weft:" + std::string(node.op->name),
                      .operand_order = std::vector<Dims>(operands.size(), channels_last),
                      .result_order = channels_last,
                      .workspace = workspace_of(node, windows_of(node), thread_count())};
}

std::unique_ptr<Kernel> compile_pool(const Step& step) { return std::make_unique<PoolKernel>(step); }
}  // namespace weft::cpu
