// Pools over windows of channels-last activations, one vector of channels at a time. Results do not
// depend on the number of threads.
#include <algorithm>
#include <cstring>

#include "weft/backends/cpu/kernels.h"
#include "weft/backends/cpu/simd/elements.h"
#include "weft/base/host/parallel.h"
#include "weft/base/memory/buffer.h"

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3")
#endif
#include "weft/backends/cpu/simd/vector_elements.h"
#include "weft/base/host/isa_dispatch.h"
#include "weft/base/numbers/rounding.h"

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

// Calls f(first channel, bytes) for vectors that cover the channels: first vectors of `bytes`
// bytes, then of half that size, and so on down to one lane.
template <class Lane, int bytes, class F>
[[gnu::always_inline]] inline void for_vectors(int64_t channels, const F& f, int64_t c = 0) {
  constexpr int64_t lanes = bytes / sizeof(Lane);
  for (; c + lanes <= channels; c += lanes) f(c, std::integral_constant<int, bytes>());
  if constexpr (lanes > 1) for_vectors<Lane, bytes / 2>(channels, f, c);
}

// `best` comes before `value`. NaN exceeds every number, and the last NaN wins, as in PyTorch;
// among equal numbers the first wins.
template <class Vector>
[[gnu::always_inline]] inline Vector greater(Vector value, Vector best) {
  best = choose(less(best, value), value, best);
  return choose(is_nan(value), value, best);
}

// Computes row `oh` of one image of y: the greatest element or the mean of each window.
template <class Element, class Lane, bool largest, int most_bytes>
struct PooledRow {
  [[gnu::always_inline]] static inline void run(const Windows* windows, const Element* image,
                                                Element* y, int64_t oh) {
    const int64_t channels = windows->channels, row = windows->in[1] * channels;
    const auto h = windows->inside(oh, 0);
    for (int64_t ow = 0; ow < windows->out[1]; ++ow, y += channels) {
      const auto w = windows->inside(ow, 1);
      const auto divisor = static_cast<Lane>(windows->divisor(h, w));
      const Element* window = image + h.first * row + w.first * channels;
      for_vectors<Lane, most_bytes>(
          channels, [&](int64_t c, auto size) __attribute__((always_inline)) {
            constexpr int bytes = decltype(size)::value;
            using Vector = VectorOf<Lane, bytes>;
            const Element* from = window + c;
            Vector result = largest ? load<Element, bytes, Lane>(from) : Vector{};
            for (int64_t i = h.first; i < h.last; ++i, from += row) {
              const Element* at = from;
              for (int64_t j = w.first; j < w.last; ++j, at += channels) {
                const Vector value = load<Element, bytes, Lane>(at);
                result = largest ? greater(value, result) : result + value;
              }
            }
            store<Element, bytes, Lane>(y + c, largest ? result : result / divisor);
          });
    }
  }
};

// A band is rows [from, until) of one image of dx. Each of its elements adds the gradients from the
// windows that cover it, in the windows' order, so that the sums do not depend on where bands end.
template <class Element, class Sum>
struct Band {
  const Windows* windows;
  const Element *x, *dy;  // the image; x only for max_pool
  Element* dx;            // the image
  Sum* sums;              // dx itself, or a ring of rows until they are rounded
  int64_t ring;           // rows of `sums`
  int64_t from, until;
};

// max_pool passes each gradient to the first maximum of its window, avg_pool spreads it over the
// window. Gradients of windows that overlap are added; without overlap they are stored directly.
template <class Element, class Sum, class Lane, bool largest, int most_bytes>
struct GradientBand {
  // rounds says whether sums stay in Lane until all windows were added.
  static constexpr bool rounds = !std::is_same_v<Element, Sum>;

  [[gnu::always_inline]] static inline void run(const Band<Element, Sum>* band) {
    const Windows& windows = *band->windows;
    const int64_t channels = windows.channels, row = windows.in[1] * channels;
    const bool covered = windows.tile(), adds = windows.overlap();
    int64_t begun = band->from, ended = band->from;  // ends of the rows with sums, of finished rows
    const auto begin_rows = [&](int64_t until) __attribute__((always_inline)) {
      for (; begun < until; ++begun)
        if (!covered) std::fill_n(band->sums + begun % band->ring * row, row, Sum{});
    };
    const auto end_rows = [&](int64_t until) __attribute__((always_inline)) {
      if constexpr (rounds)
        for (; ended < until; ++ended) round_row(*band, ended, row);
    };
    const int64_t first = windows.seeing(band->from, 0).first;
    const int64_t last = windows.seeing(band->until - 1, 0).last;
    for (int64_t oh = first; oh < last; ++oh) {
      const auto h = windows.inside(oh, 0);
      const int64_t top = std::max(h.first, band->from), bottom = std::min(h.last, band->until);
      end_rows(std::min(top, begun));
      begin_rows(top);
      end_rows(top);
      begin_rows(bottom);
      if constexpr (std::is_same_v<Sum, Lane>)
        if (adds) {
          windows_of_row<true>(*band, oh, h, {top, bottom});
          continue;
        }
      windows_of_row<false>(*band, oh, h, {top, bottom});
    }
    end_rows(begun);
    while (begun < band->until) {
      begin_rows(begun + 1);
      end_rows(begun);
    }
  }

  [[gnu::always_inline]] static inline void round_row(const Band<Element, Sum>& band, int64_t at,
                                                      int64_t row) {
    const Sum* sums = band.sums + at % band.ring * row;
    Element* to = band.dx + at * row;
    for_vectors<Lane, most_bytes>(row, [&](int64_t k, auto size) __attribute__((always_inline)) {
      constexpr int bytes = decltype(size)::value;
      store<Element, bytes, Lane>(to + k, load<Sum, bytes, Lane>(sums + k));
    });
  }

  // Adds the windows of row `oh` to rows `target` of dx, which are some of the rows `h` of x.
  template <bool adds>
  [[gnu::always_inline]] static inline void windows_of_row(const Band<Element, Sum>& band,
                                                           int64_t oh, Windows::Range h,
                                                           Windows::Range target) {
    const Windows& windows = *band.windows;
    const int64_t channels = windows.channels, row = windows.in[1] * channels;
    const Element* dy = band.dy + oh * windows.out[1] * channels;
    Sum* const ring_end = band.sums + band.ring * row;
    Sum* const top = band.sums + target.first % band.ring * row;
    for (int64_t ow = 0; ow < windows.out[1]; ++ow, dy += channels) {
      const auto w = windows.inside(ow, 1);
      const int64_t columns = w.last - w.first, left = w.first * channels;
      const auto divisor = static_cast<Lane>(windows.divisor(h, w));
      for_vectors<Lane, most_bytes>(
          channels, [&](int64_t c, auto size) __attribute__((always_inline)) {
            constexpr int bytes = decltype(size)::value;
            using Vector = VectorOf<Lane, bytes>;
            using Integer = std::conditional_t<sizeof(Lane) == 8, int64_t, int32_t>;
            using Index = VectorOf<Integer, bytes>;
            Vector share = load<Element, bytes, Lane>(dy + c);
            Index winner{}, tap{};  // numbers of elements of the window, row by row
            if constexpr (largest) {
              const Element* from = band.x + h.first * row + left + c;
              Vector best = load<Element, bytes, Lane>(from);
              for (int64_t i = h.first; i < h.last; ++i, from += row) {
                const Element* at = from;
                for (int64_t j = 0; j < columns; ++j, at += channels, tap += 1) {
                  const Vector value = load<Element, bytes, Lane>(at);
                  const auto better = less(best, value) | is_nan(value);
                  best = choose(better, value, best);
                  winner = choose(better, tap, winner);
                }
              }
              tap = Index{} + static_cast<Integer>((target.first - h.first) * columns);
            } else {
              share = share / divisor + Vector{};  // a sum that begins with 0 is never -0
            }
            Sum* sums = top + left + c;
            for (int64_t i = target.first; i < target.last; ++i) {
              Sum* at = sums;
              for (int64_t j = 0; j < columns; ++j, at += channels, tap += 1) {
                const Vector given = largest ? choose(equal(winner, tap), share, Vector{}) : share;
                if constexpr (adds)
                  store<Sum, bytes, Lane>(at, load<Sum, bytes, Lane>(at) + given);
                else
                  store<Sum, bytes, Lane>(at, given);
              }
              sums += row;
              if (sums >= ring_end) sums -= band.ring * row;
            }
          });
    }
  }
};

// Runs the body for the widest vectors of this process: 64, 32 or 16 bytes.
template <class Wide, class Middle, class Narrow, class... Args>
void run_widest(Args... args) {
  best_of(&run_avx512<Wide, Args...>, &run_avx2<Middle, Args...>,
          &run_baseline<Narrow, Args...>)(args...);
}

template <class Element, class Lane, bool largest>
void pool(const Windows& windows, const Element* x, Element* y) {
  const int64_t image = windows.in[0] * windows.in[1] * windows.channels;
  parallel_for(windows.images * windows.out[0], [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row)
      run_widest<PooledRow<Element, Lane, largest, 64>, PooledRow<Element, Lane, largest, 32>,
                 PooledRow<Element, Lane, largest, 16>>(&windows, x + row / windows.out[0] * image,
                                                        y + row * windows.out[1] * windows.channels,
                                                        row % windows.out[0]);
  });
}

// Returns the rows of sums in a thread's ring; 0 if each element of dx is in exactly one window and
// needs no sum.
int64_t ring_rows(const Windows& windows) {
  return windows.tile() ? 0 : std::min(windows.kernel[0], windows.in[0]);
}
// Returns the bytes of one thread's sums in float32.
size_t gradient_scratch_each(const Windows& windows) {
  return static_cast<size_t>(ring_rows(windows) * windows.in[1] * windows.channels) * sizeof(float);
}

template <class Element, class Lane, class Sum, bool largest>
void pool_gradient(const Windows& windows, const Element* x, const Element* dy, Element* dx,
                   Sum* sums, int threads) {
  const int64_t rows = windows.in[0], row = windows.in[1] * windows.channels;
  const int64_t all = windows.images * rows, parts = std::min<int64_t>(threads, all);
  auto run_part = [&](int64_t part) {
    const int64_t end = all * (part + 1) / parts;
    for (int64_t at = all * part / parts; at < end;) {
      const int64_t image = at / rows, from = at % rows;
      const int64_t until = std::min(rows, from + end - at);
      Band<Element, Sum> band{&windows,
                              largest ? x + image * rows * row : nullptr,
                              dy + image * windows.out[0] * windows.out[1] * windows.channels,
                              dx + image * rows * row,
                              nullptr,
                              rows,
                              from,
                              until};
      if constexpr (std::is_same_v<Element, Sum>)
        band.sums = band.dx;
      else
        band.ring = ring_rows(windows), band.sums = sums + part * band.ring * row;
      run_widest<GradientBand<Element, Sum, Lane, largest, 64>,
                 GradientBand<Element, Sum, Lane, largest, 32>,
                 GradientBand<Element, Sum, Lane, largest, 16>, const Band<Element, Sum>*>(&band);
      at += until - from;
    }
  };
  parallel_for(parts, [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part) run_part(part);
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
  if (node.op->role == Role::forward || !computes_wider(node.type.dtype)) return 0;
  return gradient_scratch_each(windows) *
         static_cast<size_t>(std::min<int64_t>(threads, windows.images * windows.in[0]));
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
      const bool largest = takes_largest(*node_.node());
      const auto* first = reinterpret_cast<const Element*>(inputs_[0].in(operands));
      auto* result = reinterpret_cast<Element*>(result_.out(results));
      if (node_->op->role == Role::forward)
        return largest ? pool<Element, Lane, true>(windows_, first, result)
                       : pool<Element, Lane, false>(windows_, first, result);
      const auto add_to = [&]<class Sum>(Sum* sums) {
        if (largest)
          pool_gradient<Element, Lane, Sum, true>(
              windows_, first, reinterpret_cast<const Element*>(inputs_[1].in(operands)), result,
              sums, threads_);
        else
          pool_gradient<Element, Lane, Sum, false>(windows_, nullptr, first, result, sums,
                                                   threads_);
      };
      if (windows_.tile())
        add_to(result);
      else
        add_to(std::is_same_v<Element, Lane> ? reinterpret_cast<Lane*>(result)
                                             : static_cast<Lane*>(workspace));
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
