// Declares clipping and accumulation of gradients, between the backward pass and the update.
#pragma once

#include <span>
#include <vector>

#include "weft/tensor/tensor.h"

namespace weft::optim {

struct Clipped {
  std::vector<Tensor> gradients;
  Tensor norm;  // scalar, before clipping: the L2 norm over all gradients
};
// Returns g * min(1, max_norm / (norm + 1e-6)) for each gradient, as PyTorch's clip_grad_norm_.
Clipped clip_grad_norm(std::span<const Tensor> gradients, double max_norm);

// Accumulator sums gradients over micro-batches. mean() divides by the row count of all
// micro-batches, so that a split batch gives the same gradient as the whole batch.
class Accumulator {
 public:
  explicit Accumulator(std::span<const Variable> parameters);

  // Adds gradients of a mean over `count` rows (an integer scalar, or a number).
  void add(std::span<const Tensor> gradients, const Arg& count = 1) const;
  // Adds gradients of a total over `count` rows.
  void add_totals(std::span<const Tensor> gradients, const Arg& count) const;
  std::vector<Tensor> mean() const;  // sum of totals / sum of counts
  void zero() const;
  const std::vector<Variable>& sums() const { return sums_; }

 private:
  std::vector<Variable> sums_;
  Variable count_;  // i64 scalar
};

}  // namespace weft::optim
