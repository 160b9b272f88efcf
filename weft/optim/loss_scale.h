// Declares dynamic loss scaling for float16 (Micikevicius et al. 2018): the loss is multiplied so
// that small gradients do not vanish; a step whose gradients overflow is skipped and halves the
// factor, and `interval` good steps in a row double it.
#pragma once

#include <vector>

#include "weft/tensor/tensor.h"

namespace weft::optim {

struct LossScaleOptions {
  double initial = 65536, floor = 1;
  int64_t interval = 2000;
};

class LossScale {
 public:
  explicit LossScale(const LossScaleOptions& options = {});

  Tensor scaled(const Tensor& loss) const;
  std::vector<Tensor> unscaled(std::span<const Tensor> gradients) const;
  // Updates the factor after a step; `finite` (bool) says whether all gradients of the step were
  // finite.
  void update(const Tensor& finite) const;
  // Returns whether the factor is above its floor, so that an overflow can still halve it.
  Tensor may_shrink() const;

  // Returns "loss_scale" (f32) and "loss_scale.good_steps" (i64), which are part of a checkpoint.
  std::vector<Variable> state() const { return {scale_, good_steps_}; }

 private:
  LossScaleOptions options_;
  Variable scale_, good_steps_;
};

}  // namespace weft::optim
