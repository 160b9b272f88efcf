// Quantization-aware training: the layers of a net compute with rounded operands, and the gradient
// passes through the rounding, except where it saturated (straight-through estimator, Jacob et al.
// 2018). So the weights adapt to int8.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "weft/quantization/int8.h"
#include "weft/quantization/layers.h"

namespace weft::quantization {

struct TrainingOptions {
  int64_t start_step = 0;  // updates without rounding at the start
  double momentum = 0.01;  // share of the newest batch in the range of an activation
};

class Training {
 public:
  // The ranges begin as scheme.ranges, or at 0 if these are empty.
  Training(Layers layers, Scheme scheme, const TrainingOptions& options = {});

  // Returns the ranges of the activations, f32 [activations], 0 before they are known:
  // "quantization.ranges".
  const Variable& ranges() const { return ranges_; }
  const Layers& layers() const { return layers_; }
  // Returns the scheme of the trained net, with its ranges; layers without a range stay in float32.
  Scheme scheme() const;
  // Returns how many layers compute with rounded operands.
  size_t quantized_layers() const;

  // Call it while a step is captured: returns `results` with the layers replaced, and replaces the
  // layers in all values that the step has assigned so far. In training mode, `step` is the number
  // of updates done, and the ranges follow a moving average of max|x| that begins with the first
  // batch (as PyTorch's MovingAverageMinMaxObserver). In evaluation the ranges are fixed, and
  // `step` is not read.
  std::vector<Tensor> applied(std::span<const Tensor> results, const Tensor& step) const;

 private:
  Layers layers_;
  Scheme scheme_;
  TrainingOptions options_;
  Variable ranges_;
};

}  // namespace weft::quantization
