#include "weft/estimate/job.h"

#include <array>

#include "weft/base/error.h"

namespace weft::estimate {

std::string_view name(Recompute recompute) {
  constexpr std::array<std::string_view, 4> names{"none", "attention", "products", "full"};
  return names[static_cast<size_t>(recompute)];
}

double Shape::attention_parameters() const {
  return static_cast<double>(hidden * (qkv_width() + query_width()));
}

double Shape::mlp_parameters(int64_t width) const {
  return static_cast<double>((gated ? 3 : 2) * hidden * width);
}

double Shape::routed_layers() const {
  return experts > 0 ? static_cast<double>(layers - dense_layers) : 0;
}

double Shape::parameters() const {
  if (!convolutions.empty()) {
    double sum = 0;
    for (const ConvolutionShape& each : convolutions)
      sum +=
          static_cast<double>(each.count * each.inputs * each.outputs * each.kernel * each.kernel);
    return sum;
  }
  const double routed = routed_layers();
  return static_cast<double>(layers) * attention_parameters() +
         (static_cast<double>(layers) - routed) * mlp_parameters(ffn) +
         routed * (static_cast<double>(experts) * mlp_parameters(expert_ffn) +
                   mlp_parameters(shared_ffn) + static_cast<double>(hidden * experts)) +
         static_cast<double>(hidden * (vocabulary * (tied ? 1 : 2) + positions));
}

void check(const Shape& shape, const Layout& layout) {
  auto divides = [&](int64_t parts, int64_t whole, std::string_view what) {
    if (parts < 1 || whole % parts != 0)
      throw Error(ErrorKind::usage, "{} {} of {} are not divided by {}.", whole, what, shape.name,
                  parts);
  };
  divides(layout.tensor, shape.heads, "heads");
  if (shape.experts > 0) divides(layout.expert, shape.experts, "experts");
  if (layout.pipeline > shape.layers)
    throw Error(ErrorKind::usage, "{} has {} layers: no {} stages.", shape.name, shape.layers,
                layout.pipeline);
}

double layer_parameters(const Shape& shape, const Layout& layout, bool routed) {
  const auto tensor = static_cast<double>(layout.tensor);
  const double attention = shape.attention_parameters() / tensor;
  if (!routed) return attention + shape.mlp_parameters(shape.ffn) / tensor;
  return attention + shape.mlp_parameters(shape.shared_ffn) / tensor +
         shape.mlp_parameters(shape.expert_ffn) * static_cast<double>(shape.experts) /
             static_cast<double>(layout.expert);
}

double stage_parameters(const Shape& shape, const Layout& layout) {
  const double routed = shape.routed_layers();
  const double dense = static_cast<double>(shape.layers) - routed;
  return (dense * layer_parameters(shape, layout, false) +
          routed * layer_parameters(shape, layout, true)) /
         static_cast<double>(layout.pipeline);
}

double adapter_parameters(const TrainingJob& job, const Layout& layout) {
  const Shape& shape = job.shape;
  const auto ends = [&](int64_t outputs) { return static_cast<double>(shape.hidden + outputs); };
  double layer = 2 * ends(shape.query_width()) + 2 * ends(shape.kv_heads * shape.head_width);
  if (job.adapts_mlp) layer += (shape.gated ? 3 : 2) * ends(shape.ffn);
  return static_cast<double>(job.adapter_rank * shape.layers) * layer /
         static_cast<double>(layout.tensor * layout.pipeline);
}

}  // namespace weft::estimate
