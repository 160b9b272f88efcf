#include "weft/optim/adam.h"

#include <cmath>

namespace weft::optim {
namespace {
// Returns 1 - beta^step. float32 holds 0.999 to 6e-8 only, a 20,000th of what it is short of 1; the
// logarithm, which is rounded once, keeps all digits.
Tensor bias_correction(double beta, const Tensor& step) {
  return beta == 0 ? ones({}, step.dtype()) : -expm1(step * std::log(beta));
}
}  // namespace

Adam::Adam(std::string_view name, std::vector<Variable> parameters, const AdamOptions& options,
           bool decoupled)
    : Optimizer(name, std::move(parameters), options.lr,
                options.weight_decay.value_or(decoupled ? 0.01 : 0.0), options.groups,
                options.rounding),
      options_(options),
      decoupled_(decoupled) {
  for (double beta : options.betas)
    WEFT_CHECK(beta >= 0 && beta < 1, "[{}] betas must be at least 0 and below 1. Got {}.", name,
               beta);
  WEFT_CHECK(options.eps >= 0, "[{}] eps must be at least 0. Got {}.", name, options.eps);
  exp_avg_ = make_state("exp_avg");
  exp_avg_sq_ = make_state("exp_avg_sq");
}

Adam::Adam(std::vector<Variable> parameters, const AdamOptions& options)
    : Adam("Adam", std::move(parameters), options, false) {}
Adam::~Adam() = default;

AdamW::AdamW(std::vector<Variable> parameters, const AdamOptions& options)
    : Adam("AdamW", std::move(parameters), options, true) {}
AdamW::~AdamW() = default;

std::vector<Tensor> Adam::scalars(const Tensor& step, const Tensor& rate,
                                  double weight_decay) const {
  const Tensor first = bias_correction(options_.betas[0], step);
  const Tensor second = bias_correction(options_.betas[1], step);
  return {rate / first, rsqrt(second), 1.0 - rate * weight_decay};
}

Tensor Adam::update(size_t i, const Tensor& value, const Tensor& gradient,
                    std::span<const Tensor> scalars, double weight_decay) const {
  const auto [beta1, beta2] = options_.betas;
  bool into_gradient = weight_decay != 0 && !decoupled_;
  Tensor g = into_gradient ? gradient + weight_decay * value : gradient;
  Tensor m = exp_avg_[i].value(), v = exp_avg_sq_[i].value();
  m = m + (1 - beta1) * (g - m);
  v = beta2 * v + (1 - beta2) * (g * g);
  set(exp_avg_[i], m);
  set(exp_avg_sq_[i], v);
  Tensor kept = weight_decay != 0 && decoupled_ ? value * scalars[2] : value;
  return kept - scalars[0] * (m / (sqrt(v) * scalars[1] + options_.eps));
}

}  // namespace weft::optim
