// Scales the loss of runs whose products are in float16 (optim/loss_scale.h).
#include "weft/optim/loss_scale.h"

#include <memory>
#include <utility>

#include "weft/train/experiment.h"
#include "weft/train/methods/method.h"
#include "weft/train/run/report.h"

namespace weft::train {
namespace {
class LossScaling : public Method {
 public:
  std::vector<Variable> state() const override { return scale_.state(); }
  Tensor scaled(const Tensor& loss) const override { return scale_.scaled(loss); }
  std::vector<Tensor> unscaled(std::vector<Tensor> gradients) const override {
    return scale_.unscaled(gradients);
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
  optim::LossScale scale_;
};
}  // namespace

std::unique_ptr<Method> loss_scale_method(const Experiment& experiment, const MethodOptions&) {
  if (experiment.precision.products != Precision::fp16_mixed) return nullptr;
  return std::make_unique<LossScaling>();
}

}  // namespace weft::train
