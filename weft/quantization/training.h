// Quantization-aware training: the layers of a net compute with rounded operands, through which
// gradients pass where they did not saturate (Jacob et al. 2018), so that the weights learn to do
// with int8.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "weft/quantization/int8.h"
#include "weft/quantization/layers.h"

namespace weft::quantization {

struct TrainingOptions {
  int64_t start_step = 0;  // updates before the first that rounds
  double momentum = 0.01;  // share of the newest batch in the range of an activation
};

class Training {
 public:
  // The ranges begin as those of the scheme, or at 0 where it has none.
  Training(Layers layers, Scheme scheme, const TrainingOptions& options = {});

  // Returns the ranges of the activations, f32 [activations], 0 before they are known:
  // "quantization.ranges".
  const Variable& ranges() const { return ranges_; }
  const Layers& layers() const { return layers_; }
  // Returns how the net that was trained is quantized: layers without a range stay.
  Scheme scheme() const;
  // Returns how many layers compute with rounded operands.
  size_t quantized_layers() const;

  // Is part of a step that is being captured: replaces the layers in results, and in all that the
  // step assigned so far. In training mode, with the number of updates done, the ranges follow the
  // batch, by a moving average of max|x| which begins with the first one (as PyTorch's
  // MovingAverageMinMaxObserver); in evaluation they are fixed, and `step` is not read.
  std::vector<Tensor> applied(std::span<const Tensor> results, const Tensor& step) const;

 private:
  Layers layers_;
  Scheme scheme_;
  TrainingOptions options_;
  Variable ranges_;
};

}  // namespace weft::quantization
