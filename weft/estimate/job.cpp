#include "weft/estimate/job.h"

#include <array>

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

}  // namespace weft::estimate
