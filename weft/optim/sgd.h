// Declares stochastic gradient descent with momentum, as PyTorch defines it.
#pragma once

#include "weft/optim/optimizer.h"

namespace weft::optim {

struct SGDOptions {
  Schedule lr = 1e-3;
  double momentum = 0;
  double dampening = 0;  // share of each gradient kept out of the momentum, from the second step on
  double weight_decay = 0;  // added to the gradient
  bool nesterov = false;
  std::vector<Group> groups = {};
  Rounding rounding = Rounding::nearest;
};

// SGD computes g += weight_decay * w; v = momentum * v + (1 - dampening) * g (v = g at the first
// step); w -= lr * v, or with Nesterov w -= lr * (g + momentum * v).
class SGD : public Optimizer {
 public:
  SGD(std::vector<Variable> parameters, const SGDOptions& options);
  ~SGD() override;

 private:
  std::vector<Tensor> scalars(const Tensor& step, const Tensor& rate,
                              double weight_decay) const override;
  Tensor update(size_t i, const Tensor& value, const Tensor& gradient,
                std::span<const Tensor> scalars, double weight_decay) const override;

  SGDOptions options_;
  std::vector<Variable> velocity_;  // none without momentum
};

}  // namespace weft::optim
