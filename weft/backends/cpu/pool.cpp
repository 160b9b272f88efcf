// Pools over windows of channels-last activations, one vector of channels at a time. Results do not
// depend on the number of threads.
#include <algorithm>
#include <cstring>

#include "weft/backends/cpu/elements.h"
#include "weft/backends/cpu/kernels.h"
#include "weft/base/buffer.h"
#include "weft/base/parallel.h"

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3")  // vectorizes the loops over channels
#endif
#include "weft/base/isa_dispatch.h"
#include "weft/base/rounding.h"

namespace weft::cpu {
namespace {
const Dims channels_last{0, 2, 3, 1};

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

  bool overlap() const { return stride[0] < kernel[0] || stride[1] < kernel[1]; }
  // Returns whether every element is in exactly one window.
  bool tile() const {
    bool exact = true;
    for (int s = 0; s < 2; ++s)
      exact &= stride[s] == kernel[s] && padding[s] == 0 && in[s] == out[s] * kernel[s];
    return exact;
  }

  // inside() returns the part [first, last) of the window `at` along axis `s` that is not padding.
  struct Range {
    int64_t first, last;
  };
  Range inside(int64_t at, int s) const {
    const int64_t start = at * stride[s] - padding[s];
    return {std::max<int64_t>(0, start), std::min(in[s], start + kernel[s])};
  }
  // Returns the windows [first, last) along axis `s` that cover element `at`.
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

// vector_lanes channels of one pixel are computed at once. Loops over them are vectorized for the
// instruction set that a body is compiled for: a whole vector has a constant count, the last
// channels do not.
template <class Lane>
constexpr int vector_lanes = 64 / static_cast<int>(sizeof(Lane));

template <class Lane, class F>
[[gnu::always_inline]] inline void for_lanes(int64_t width, F f) {
  if (width == vector_lanes<Lane>) {
#pragma GCC unroll 1  // unrolled before vectorization, a select between lanes would stay scalar
    for (int k = 0; k < vector_lanes<Lane>; ++k) f(k);
  } else {
    for (int k = 0; k < width; ++k) f(k);
  }
}

// NaN exceeds everything, and the last one wins among them, as in PyTorch.
template <class Lane>
[[gnu::always_inline]] inline bool exceeds(Lane value, Lane best) {
  return (value > best) | (value != value);  // NOLINT(misc-redundant-expression): NaN
}

// Calls f(first channel, width) for each vector of `channels`.
template <class Lane, class F>
[[gnu::always_inline]] inline void for_vectors(int64_t channels, F f) {
  for (int64_t c = 0; c < channels; c += vector_lanes<Lane>)
    f(c, std::min<int64_t>(vector_lanes<Lane>, channels - c));
}

// Each body below computes one task: a row of one image or, for max_pool's gradient, one image of a
// block of channels, with pointers to its first channel.
template <class Element, class Lane>
struct MaxPoolRow {
  [[gnu::always_inline]] static inline void run(const Windows* windows, const Element* image,
                                                Element* y, int64_t oh) {
    const auto h = windows->inside(oh, 0);
    for (int64_t ow = 0; ow < windows->out[1]; ++ow, y += windows->channels) {
      const auto w = windows->inside(ow, 1);
      for_vectors<Lane>(windows->channels, [&](int64_t c,
                                               int64_t width) __attribute__((always_inline)) {
        const Element* from = image + (h.first * windows->in[1] + w.first) * windows->channels + c;
        Lane best[vector_lanes<Lane>];
        for_lanes<Lane>(
            width, [&](int k) __attribute__((always_inline)) { best[k] = to_lane<Lane>(from[k]); });
        for (int64_t i = h.first; i < h.last; ++i)
          for (int64_t j = w.first; j < w.last; ++j) {
            from = image + (i * windows->in[1] + j) * windows->channels + c;
            for_lanes<Lane>(width, [&](int k) __attribute__((always_inline)) {
              const Lane value = to_lane<Lane>(from[k]);
              best[k] = exceeds(value, best[k]) ? value : best[k];
            });
          }
        Element* to = y + c;
        for_lanes<Lane>(width, [&](int k) __attribute__((always_inline)) {
          to[k] = from_lane<Element>(best[k]);
        });
      });
    }
  }
};

// Each gradient goes to the first maximum of its window. `sums` is dx itself, or float scratch for
// 16-bit types; windows that do not overlap write there, others add.
template <class Element, class Lane>
struct MaxPoolGradientImage {
  using Index = std::conditional_t<sizeof(Lane) == 8, int64_t, int32_t>;

  [[gnu::always_inline]] static inline void run(const Windows* windows, const Element* x,
                                                const Element* dy, Lane* sums, int64_t sums_stride,
                                                int64_t channels) {
    if (!windows->tile())
      for (int64_t pixel = 0; pixel < windows->in[0] * windows->in[1]; ++pixel)
        for (int64_t c = 0; c < channels; ++c) sums[pixel * sums_stride + c] = 0;
    for (int64_t oh = 0; oh < windows->out[0]; ++oh)
      for (int64_t ow = 0; ow < windows->out[1]; ++ow, dy += windows->channels) {
        const auto h = windows->inside(oh, 0), w = windows->inside(ow, 1);
        for_vectors<Lane>(channels, [&](int64_t c, int64_t width) __attribute__((always_inline)) {
          window(*windows, x + c, dy + c, h, w, sums + c, sums_stride, width);
        });
      }
  }

  [[gnu::always_inline]] static inline void window(const Windows& windows, const Element* x,
                                                   const Element* gradient, Windows::Range h,
                                                   Windows::Range w, Lane* sums,
                                                   int64_t sums_stride, int64_t width) {
    const Element* from = x + (h.first * windows.in[1] + w.first) * windows.channels;
    Lane best[vector_lanes<Lane>];
    Index where[vector_lanes<Lane>];
    for_lanes<Lane>(width, [&](int k) __attribute__((always_inline)) {
      best[k] = to_lane<Lane>(from[k]), where[k] = 0;
    });
    Index tap = 0;
    for (int64_t i = h.first; i < h.last; ++i)
      for (int64_t j = w.first; j < w.last; ++j, ++tap) {
        from = x + (i * windows.in[1] + j) * windows.channels;
        for_lanes<Lane>(width, [&](int k) __attribute__((always_inline)) {
          const Lane value = to_lane<Lane>(from[k]);
          const bool better = exceeds(value, best[k]);
          best[k] = better ? value : best[k];
          where[k] = better ? tap : where[k];
        });
      }
    Lane share[vector_lanes<Lane>];
    for_lanes<Lane>(width, [&](int k) __attribute__((always_inline)) {
      share[k] = to_lane<Lane>(gradient[k]);
    });
    const bool adds = windows.overlap();
    tap = 0;
    for (int64_t i = h.first; i < h.last; ++i)
      for (int64_t j = w.first; j < w.last; ++j, ++tap) {
        Lane* to = sums + (i * windows.in[1] + j) * sums_stride;
        if (adds)
          for_lanes<Lane>(width, [&](int k) __attribute__((always_inline)) {
            to[k] += where[k] == tap ? share[k] : Lane{};
          });
        else
          for_lanes<Lane>(width, [&](int k) __attribute__((always_inline)) {
            to[k] = where[k] == tap ? share[k] : Lane{};
          });
      }
  }
};

template <class Element, class Lane>
struct AvgPoolRow {
  [[gnu::always_inline]] static inline void run(const Windows* windows, const Element* image,
                                                Element* y, int64_t oh) {
    const auto h = windows->inside(oh, 0);
    for (int64_t ow = 0; ow < windows->out[1]; ++ow, y += windows->channels) {
      const auto w = windows->inside(ow, 1);
      const auto divisor = static_cast<Lane>(windows->divisor(h, w));
      for_vectors<Lane>(
          windows->channels, [&](int64_t c, int64_t width) __attribute__((always_inline)) {
            Lane sum[vector_lanes<Lane>] = {};
            for (int64_t i = h.first; i < h.last; ++i)
              for (int64_t j = w.first; j < w.last; ++j) {
                const Element* from = image + (i * windows->in[1] + j) * windows->channels + c;
                for_lanes<Lane>(width, [&](int k) __attribute__((always_inline)) {
                  sum[k] += to_lane<Lane>(from[k]);
                });
              }
            Element* to = y + c;
            for_lanes<Lane>(width, [&](int k) __attribute__((always_inline)) {
              to[k] = from_lane<Element>(sum[k] / divisor);
            });
          });
    }
  }
};

template <class Element, class Lane>
struct AvgPoolGradientRow {
  [[gnu::always_inline]] static inline void run(const Windows* windows, const Element* image,
                                                Element* dx, int64_t h) {
    const auto over_h = windows->seeing(h, 0);
    for (int64_t w = 0; w < windows->in[1]; ++w, dx += windows->channels) {
      const auto over_w = windows->seeing(w, 1);
      for_vectors<Lane>(windows->channels, [&](int64_t c,
                                               int64_t width) __attribute__((always_inline)) {
        Lane sum[vector_lanes<Lane>] = {};
        for (int64_t oh = over_h.first; oh < over_h.last; ++oh)
          for (int64_t ow = over_w.first; ow < over_w.last; ++ow) {
            const auto divisor =
                static_cast<Lane>(windows->divisor(windows->inside(oh, 0), windows->inside(ow, 1)));
            const Element* from = image + (oh * windows->out[1] + ow) * windows->channels + c;
            for_lanes<Lane>(width, [&](int k) __attribute__((always_inline)) {
              sum[k] += to_lane<Lane>(from[k]) / divisor;
            });
          }
        Element* to = dx + c;
        for_lanes<Lane>(width, [&](int k) __attribute__((always_inline)) {
          to[k] = from_lane<Element>(sum[k]);
        });
      });
    }
  }
};

// Runs Body on every row: `from` has images of from_extent, `to` of to_extent.
template <template <class, class> class Body, class Element, class Lane>
void for_each_row(const Windows& windows, const Element* from, const Dims& from_extent, Element* to,
                  const Dims& to_extent) {
  parallel_for(windows.images * to_extent[0], [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row)
      run_on_best<Body<Element, Lane>>(
          &windows, from + row / to_extent[0] * from_extent[0] * from_extent[1] * windows.channels,
          to + row * to_extent[1] * windows.channels, row % to_extent[0]);
  });
}

constexpr int64_t gradient_block = 64;  // channels
int64_t gradient_tasks(const Windows& windows) {
  return windows.images * ceil_div(windows.channels, gradient_block);
}
// Returns the bytes of one task's sums in float32.
size_t gradient_scratch_each(const Windows& windows) {
  return static_cast<size_t>(windows.in[0] * windows.in[1] * gradient_block) * sizeof(float);
}

template <class Element, class Lane>
void max_pool_gradient(const Windows& windows, const Element* x, const Element* dy, Element* dx,
                       std::byte* workspace, int threads) {
  const int64_t tasks = gradient_tasks(windows), parts = std::min<int64_t>(threads, tasks);
  const int64_t pixels = windows.in[0] * windows.in[1];
  auto run_task = [&](int64_t task, int64_t part) {
    const int64_t blocks = tasks / windows.images, image = task / blocks;
    const int64_t c = task % blocks * gradient_block, start = image * pixels * windows.channels + c;
    const int64_t channels = std::min(gradient_block, windows.channels - c);
    const Element* gradients = dy + image * windows.out[0] * windows.out[1] * windows.channels + c;
    using Body = MaxPoolGradientImage<Element, Lane>;
    if constexpr (std::is_same_v<Element, Lane>) {
      run_on_best<Body>(&windows, x + start, gradients, dx + start, windows.channels, channels);
    } else {
      auto* sums = reinterpret_cast<Lane*>(workspace + static_cast<size_t>(part) *
                                                           gradient_scratch_each(windows));
      run_on_best<Body>(&windows, x + start, gradients, sums, gradient_block, channels);
      for (int64_t pixel = 0; pixel < pixels; ++pixel)
        for (int64_t k = 0; k < channels; ++k)
          dx[start + pixel * windows.channels + k] =
              from_lane<Element>(sums[pixel * gradient_block + k]);
    }
  };
  parallel_for(parts, [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part)
      for (int64_t task = tasks * part / parts; task < tasks * (part + 1) / parts; ++task)
        run_task(task, part);
  });
}

bool takes_largest(const Node& node) { return node.op->combine == ScalarOp::maximum; }

Windows windows_of(const Node& node) {
  const Shape& first = node.inputs[0].shape();
  if (node.op->role == Role::forward) return {node, first, node.type.shape};
  return takes_largest(node) ? Windows{node, first, node.inputs[1].shape()}
                             : Windows{node, node.type.shape, first};
}

size_t workspace_of(const Node& node, const Windows& windows, int threads) {
  const bool narrow = computes_wider(node.type.dtype);
  if (node.op->role == Role::forward || !takes_largest(node) || !narrow) return 0;
  return gradient_scratch_each(windows) *
         static_cast<size_t>(std::min<int64_t>(threads, gradient_tasks(windows)));
}

class PoolKernel : public Kernel {
 public:
  explicit PoolKernel(const Launch& launch)
      : node_(launch.body.front()),
        windows_(windows_of(*node_.node())),
        inputs_(bind_inputs(launch)),
        result_(bind_result(launch)),
        threads_(thread_count()) {
    WEFT_ASSERT(workspace_of(*node_.node(), windows_, threads_) <= launch.workspace,
                "{} plans too little workspace", launch.kernel);
  }

  void run(void* const* operands, void* const* results, void* workspace) const override {
    with_float(result_.type.dtype, [&]<class Element, class Lane>(Element, Lane) {
      const auto* first = reinterpret_cast<const Element*>(inputs_[0].in(operands));
      auto* result = reinterpret_cast<Element*>(result_.out(results));
      const Windows& w = windows_;
      const bool forward = node_->op->role == Role::forward, largest = takes_largest(*node_.node());
      if (forward && largest)
        return for_each_row<MaxPoolRow, Element, Lane>(w, first, w.in, result, w.out);
      if (forward) return for_each_row<AvgPoolRow, Element, Lane>(w, first, w.in, result, w.out);
      if (!largest)
        return for_each_row<AvgPoolGradientRow, Element, Lane>(w, first, w.out, result, w.in);
      max_pool_gradient<Element, Lane>(windows_, first,
                                       reinterpret_cast<const Element*>(inputs_[1].in(operands)),
                                       result, static_cast<std::byte*>(workspace), threads_);
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

std::unique_ptr<Kernel> compile_pool(const Launch& launch) {
  return std::make_unique<PoolKernel>(launch);
}
}  // namespace weft::cpu
