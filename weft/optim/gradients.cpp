#include "weft/optim/gradients.h"

namespace weft::optim {

Clipped clip_grad_norm(std::span<const Tensor> gradients, double max_norm) {
  WEFT_CHECK(max_norm > 0, "[clip_grad_norm] max_norm must be positive. Got {}.", max_norm);
  WEFT_CHECK(!gradients.empty(), "[clip_grad_norm] there are no gradients.");
  Tensor total;
  for (const Tensor& gradient : gradients) {
    Tensor squares = sum(square(cast(gradient, accumulator(gradient.dtype()))));
    total = total.defined() ? total + squares : squares;
  }
  Tensor norm = sqrt(total);
  Tensor factor = minimum(max_norm / (norm + 1e-6), 1.0);
  std::vector<Tensor> clipped;
  for (const Tensor& gradient : gradients)
    clipped.push_back(gradient * cast(factor, gradient.dtype()));
  return {std::move(clipped), norm};
}

Accumulator::Accumulator(std::span<const Variable> parameters)
    : count_("accumulated.count", {DType::i64, {}}, Category::gradient) {
  for (const Variable& parameter : parameters) {
    Type type{accumulator(parameter.type().dtype), parameter.shape()};
    sums_.emplace_back("accumulated." + parameter.name(), type, Category::gradient);
    sums_.back().make_partial();
  }
  count_.make_partial();
}

void Accumulator::add(std::span<const Tensor> gradients, const Arg& count) const {
  std::vector<Tensor> totals;
  for (const Tensor& gradient : gradients) {
    const DType dtype = accumulator(gradient.dtype());
    const Tensor rows =
        count.value.defined() ? cast(count.value, dtype) : scalar(count.scalar, dtype);
    totals.push_back(cast(gradient, dtype) * rows);
  }
  add_totals(totals, count);
}

void Accumulator::add_totals(std::span<const Tensor> gradients, const Arg& count) const {
  WEFT_CHECK(gradients.size() == sums_.size(), "[accumulate] takes {} gradients. Got {}.",
             sums_.size(), gradients.size());
  Tensor rows =
      count.value.defined() ? cast(count.value, DType::i64) : scalar(count.scalar, DType::i64);
  for (size_t i = 0; i < sums_.size(); ++i) {
    DType dtype = sums_[i].type().dtype;
    sums_[i].assign(sums_[i].value() + cast(gradients[i], dtype));
  }
  count_.assign(count_.value() + rows);
}

std::vector<Tensor> Accumulator::mean() const {
  std::vector<Tensor> means;
  means.reserve(sums_.size());
  for (const Variable& total : sums_)
    means.push_back(total.value() * reciprocal(cast(count_.value(), total.type().dtype)));
  return means;
}

void Accumulator::zero() const {
  for (const Variable& total : sums_) total.assign(zeros(total.shape(), total.type().dtype));
  count_.assign(zeros({}, DType::i64));
}

}  // namespace weft::optim
