// Scales the loss of runs whose products are in float16 (optim/loss_scale.h).
#include "weft/optim/loss_scale.h"

#include <cmath>
#include <memory>
#include <utility>

#include "weft/train/experiment.h"
#include "weft/train/methods/method.h"
#include "weft/train/run/report.h"

namespace weft::train {
namespace {
class LossScaling : public Method {
 public:
  // A loss is the sum over `labels` of a pass, whose gradients in float16 would overflow: each
  // label has a share, a power of two, which changes no bits.
  explicit LossScaling(int64_t labels)
      : share_(std::exp2(-std::ceil(std::log2(static_cast<double>(labels))))) {}
  std::vector<Variable> state() const override { return scale_.state(); }
  Tensor scaled(const Tensor& total) const override { return scale_.scaled(total * share_); }
  std::vector<Tensor> unscaled(std::vector<Tensor> gradients) const override {
    gradients = scale_.unscaled(gradients);
    for (Tensor& gradient : gradients) gradient = gradient * (1 / share_);
    return gradients;
  }
  // An update that overflows halves the scale, which is forgiven until the scale is at its floor.
  Tensor forgives(const Tensor& finite) const override {
    Tensor may_shrink = scale_.may_shrink();
    scale_.update(finite);
    return may_shrink;
  }
  void describe(StepLine& line) const override {
    line.loss_scale = scale_.state().front().value().item();
  }

 private:
  double share_;
  optim::LossScale scale_;
};
}  // namespace

std::unique_ptr<Method> loss_scale_method(const Experiment& experiment, const MethodOptions&) {
  if (experiment.precision.products != Precision::fp16_mixed) return nullptr;
  return std::make_unique<LossScaling>(
      element_count(experiment.label_type(experiment.micro_batch).shape));
}

}  // namespace weft::train
