// Averages the weights of a run: the model is an exponential moving average of the weights that
// train, with which it is evaluated and saved,
//
//   average = average + (weights - average) * max(1 - decay, 9 / (10 + t))   after update t
//
// that is, an update keeps min(decay, (1 + t) / (10 + t)) of the average, as by TensorFlow's
// ExponentialMovingAverage with num_updates; without ema.warmup it keeps decay, as by timm's
// ModelEmaV2. The average begins with the weights of the start. Buffers, such as the statistics of
// batch norm, are the model's own.
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "weft/io/files.h"
#include "weft/train/experiment.h"
#include "weft/train/methods/method.h"

namespace weft::train {
namespace {
class AveragedWeights : public Method {
 public:
  AveragedWeights(const Experiment& experiment, bool initialize)
      : decay_(*experiment.recipe->ema.decay), warms_up_(experiment.recipe->ema.warmup) {
    for (const Variable& parameter : experiment.model->parameters()) {
      if (size_of(parameter.dtype()) < sizeof(float))
        experiment.recipe.refuse(
            keys::ema::decay,
            fmt::format("ema.decay: {} is {}, whose average would not move: an update changes it "
                        "by less than its rounding. Hint: --train.precision bf16-mixed.",
                        io::printable(parameter.name()), name(parameter.dtype())));
      const Variable average(fmt::format("ema.{}", parameter.name()), parameter.type(),
                             Category::optimizer_state);
      if (initialize) average.assign(parameter.value());
      averages_.push_back({parameter, average});
    }
  }

  std::vector<Variable> state() const override {
    std::vector<Variable> all;
    all.reserve(averages_.size());
    for (const StandIn& each : averages_) all.push_back(each.used);
    return all;
  }
  std::vector<StandIn> stand_ins() const override { return averages_; }
  std::vector<MethodBill> bills() const override {
    return {{{.what = "averaged weights",
              .key = "average_bytes",
              .row = "averages",
              .note = "of the weights that train",
              .precedes_arena = true},
             state()}};
  }

  void after_update(const AfterUpdate& update) const override {
    for (const auto& [parameter, average] : averages_) {
      const Tensor before = average.value(), now = parameter.value();
      const Tensor moved = before + (now - before) * share(update.step, parameter.dtype());
      average.assign(masked_by(update.methods, parameter, moved));
    }
  }

 private:
  // Returns the share of the new weights in the average after update `step`.
  Tensor share(const Tensor& step, DType type) const {
    const Tensor least = scalar(1 - decay_, type);
    return warms_up_ ? maximum(9.0 / (cast(step, type) + 10.0), least) : least;
  }

  double decay_;
  bool warms_up_;
  std::vector<StandIn> averages_;
};
}  // namespace

std::unique_ptr<Method> ema_method(const Experiment& experiment, const MethodOptions& options) {
  if (!options.trains || !experiment.recipe->ema.decay) return nullptr;
  return std::make_unique<AveragedWeights>(experiment, options.initialize);
}

}  // namespace weft::train
