// Declares Adam (Kingma & Ba 2015) and AdamW (Loshchilov & Hutter 2019), as PyTorch defines them.
#pragma once

#include <array>

#include "weft/optim/optimizer.h"

namespace weft::optim {

struct AdamOptions {
  Schedule lr = 1e-3;
  std::array<double, 2> betas = {0.9, 0.999};
  double eps = 1e-8;
  // Adam adds weight_decay * w to the gradient (empty: 0), AdamW scales w by 1 - lr * weight_decay
  // (empty: 0.01).
  std::optional<double> weight_decay = {};
  std::vector<Group> groups = {};
  Rounding rounding = Rounding::nearest;
};

// Adam computes m = b1 m + (1 - b1) g; v = b2 v + (1 - b2) g^2; with t from 1, w -= lr / (1 - b1^t)
// * m / (sqrt(v / (1 - b2^t)) + eps).
class Adam : public Optimizer {
 public:
  Adam(std::vector<Variable> parameters, const AdamOptions& options);
  ~Adam() override;

 protected:
  Adam(std::string_view name, std::vector<Variable> parameters, const AdamOptions& options,
       bool decoupled);

 private:
  std::vector<Tensor> scalars(const Tensor& step, const Tensor& rate,
                              double weight_decay) const override;
  Tensor update(size_t i, const Tensor& value, const Tensor& gradient,
                std::span<const Tensor> scalars, double weight_decay) const override;

  AdamOptions options_;
  bool decoupled_;
  std::vector<Variable> exp_avg_, exp_avg_sq_;
};

// AdamW is Adam with decoupled weight decay.
class AdamW : public Adam {
 public:
  AdamW(std::vector<Variable> parameters, const AdamOptions& options);
  ~AdamW() override;
};

}  // namespace weft::optim
