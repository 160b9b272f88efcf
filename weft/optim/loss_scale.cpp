#include "weft/optim/loss_scale.h"

namespace weft::optim {

LossScale::LossScale(const LossScaleOptions& options)
    : options_(options),
      scale_("loss_scale", {DType::f32, {}}, Category::optimizer_state),
      good_steps_("loss_scale.good_steps", {DType::i64, {}}, Category::optimizer_state) {
  WEFT_CHECK(options.floor > 0 && options.initial >= options.floor,
             "[loss_scale] initial must be at least floor, and floor positive. Got {} and {}.",
             options.initial, options.floor);
  WEFT_CHECK(options.interval > 0, "[loss_scale] interval must be positive. Got {}.",
             options.interval);
  scale_.assign(scalar(options.initial, DType::f32));
}

Tensor LossScale::scaled(const Tensor& loss) const {
  return loss * cast(scale_.value(), loss.dtype());
}

std::vector<Tensor> LossScale::unscaled(std::span<const Tensor> gradients) const {
  Tensor factor = reciprocal(scale_.value());
  std::vector<Tensor> result;
  result.reserve(gradients.size());
  for (const Tensor& gradient : gradients)
    result.push_back(gradient * cast(factor, gradient.dtype()));
  return result;
}

void LossScale::update(const Tensor& finite) const {
  Tensor good = good_steps_.value() + 1, scale = scale_.value();
  Tensor grows = good >= options_.interval;
  Tensor kept = select(grows, scale * 2.0, scale), less = maximum(scale * 0.5, options_.floor);
  scale_.assign(select(finite, kept, less));
  Tensor none = zeros({}, DType::i64);
  good_steps_.assign(select(finite, select(grows, none, good), none));
}

Tensor LossScale::may_shrink() const { return scale_.value() > options_.floor; }

}  // namespace weft::optim
