#include "weft/quantization/training.h"

#include <algorithm>
#include <utility>

#include "weft/tensor/compile.h"

namespace weft::quantization {
namespace {
Tensor element(const Tensor& row, size_t at) {
  const auto i = static_cast<int64_t>(at);
  return reshape(slice(row, 0, i, i + 1), {});
}

// A Pass is one capture of a step.
class Pass {
 public:
  Pass(const Layers& layers, const Scheme& scheme, const TrainingOptions& options,
       const Variable& ranges, const Tensor& step)
      : layers_(layers),
        scheme_(scheme),
        options_(options),
        trains_(current_mode() == Mode::train) {
    const Tensor all = ranges.value();
    for (size_t i = 0; i < layers.activations.size(); ++i) ranges_.push_back(element(all, i));
    seen_.resize(ranges_.size());
    if (trains_) has_begun_ = step >= options.start_step;
  }

  Tensor input(const Layer& layer, const Tensor& x) {
    if (trains_) observe(layer.activation, x);
    const Activation& activation = layers_.activations[layer.activation];
    const Tensor& range = ranges_[layer.activation];
    const Tensor rounded_x =
        scheme_.dynamic
            ? rounded(x, dynamic_scale(x), DType::i8)
            : rounded(x, select(range > 0, range / activation.levels(), 1), activation.dtype());
    return once_begun(layer, rounded_x, x);
  }
  Tensor weight(const Layer& layer, const Tensor& weight) const {
    const Tensor scales =
        weight_scales(weight, layer.channel_axis, weight_levels(scheme_.weight_bits));
    return once_begun(layer, fake_quantize(weight, scales, {}, DType::i8), weight);
  }
  Tensor ranges() const { return stack(ranges_, 0); }

 private:
  // Observes each value once, even if several layers read it.
  void observe(size_t activation, const Tensor& x) {
    std::vector<const Node*>& seen = seen_[activation];
    if (std::ranges::find(seen, x.node()) != seen.end()) return;
    seen.push_back(x.node());
    Tensor& range = ranges_[activation];
    const Tensor here = max(abs(stop_gradient(x)));
    const Tensor moved = select(range > 0, range + (here - range) * options_.momentum, here);
    range = select(logical_and(has_begun_, is_finite(here)), moved, range);
  }
  // In evaluation the range says whether training has begun to round.
  Tensor once_begun(const Layer& layer, const Tensor& with, const Tensor& without) const {
    if (trains_ && options_.start_step == 0) return with;
    return select(trains_ ? has_begun_ : ranges_[layer.activation] > 0, with, without);
  }

  const Layers& layers_;
  const Scheme& scheme_;
  const TrainingOptions& options_;
  bool trains_;
  Tensor has_begun_;
  std::vector<Tensor> ranges_;
  std::vector<std::vector<const Node*>> seen_;
};
}  // namespace

Training::Training(Layers layers, Scheme scheme, const TrainingOptions& options)
    : layers_(std::move(layers)),
      scheme_(std::move(scheme)),
      options_(options),
      ranges_("quantization.ranges",
              {DType::f32, {static_cast<int64_t>(layers_.activations.size())}},
              Category::buffer_state) {
  if (!scheme_.ranges.empty()) ranges_.assign(tensor(scheme_.ranges, ranges_.shape(), DType::f32));
}

Scheme Training::scheme() const {
  Scheme scheme = scheme_;
  scheme.ranges = ranges_.to_doubles();
  exclude_without_range(layers_, scheme);
  return scheme;
}

size_t Training::quantized_layers() const {
  size_t count = 0;
  for (size_t i = 0; i < layers_.layers.size(); ++i) count += is_quantized(layers_, scheme_, i);
  return count;
}

std::vector<Tensor> Training::applied(std::span<const Tensor> results, const Tensor& step) const {
  const OriginScope origin("quantization");
  Pass pass(layers_, scheme_, options_, ranges_, step);
  std::vector<Tensor> all = transform_captured(results, [&](const Graph& graph) {
    return replaced(graph, layers_,
                    {.weight = [&](const Layer& layer, const Value& weight) -> Value {
                       const auto i = static_cast<size_t>(&layer - layers_.layers.data());
                       return is_quantized(layers_, scheme_, i) ? pass.weight(layer, weight)
                                                                : Value();
                     },
                     .input = [&](const Layer& layer, const Value& x) -> Value {
                       return pass.input(layer, x);
                     }});
  });
  if (current_mode() == Mode::train) ranges_.assign(pass.ranges());
  return all;
}

}  // namespace weft::quantization
