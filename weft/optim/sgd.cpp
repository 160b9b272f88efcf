#include "weft/optim/sgd.h"

namespace weft::optim {

SGD::SGD(std::vector<Variable> parameters, const SGDOptions& options)
    : Optimizer("SGD", std::move(parameters), options.lr, options.weight_decay, options.groups,
                options.rounding),
      options_(options) {
  WEFT_CHECK(options.momentum >= 0 && options.momentum < 1,
             "[SGD] momentum must be at least 0 and below 1. Got {}.", options.momentum);
  WEFT_CHECK(options.dampening >= 0 && options.dampening <= 1,
             "[SGD] dampening must be between 0 and 1. Got {}.", options.dampening);
  WEFT_CHECK(!options.nesterov || (options.momentum > 0 && options.dampening == 0),
             "[SGD] nesterov needs momentum and no dampening. Got momentum {}, dampening {}.",
             options.momentum, options.dampening);
  if (options.momentum > 0) velocity_ = make_state("momentum_buffer");
}

SGD::~SGD() = default;

std::vector<Tensor> SGD::scalars(const Tensor& step, const Tensor& rate, double) const {
  if (options_.dampening == 0) return {rate};
  return {rate, select(step == 1.0, 1.0, scalar(1 - options_.dampening, rate.dtype()))};
}

Tensor SGD::update(size_t i, const Tensor& value, const Tensor& gradient,
                   std::span<const Tensor> scalars, double weight_decay) const {
  Tensor direction = gradient;
  if (weight_decay != 0) direction = direction + weight_decay * value;
  if (options_.momentum > 0) {
    Tensor entering = options_.dampening == 0 ? direction : direction * scalars[1];
    Tensor velocity = options_.momentum * velocity_[i].value() + entering;
    set(velocity_[i], velocity);
    direction = options_.nesterov ? direction + options_.momentum * velocity : velocity;
  }
  return value - scalars[0] * direction;
}

}  // namespace weft::optim
