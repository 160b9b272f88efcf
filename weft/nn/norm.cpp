#include "weft/nn/layers.h"
#include "weft/tensor/compile.h"

namespace weft::nn {
namespace {
void check_features(const Module& layer, const char* op, const Tensor& x, int axis,
                    int64_t features) {
  bool fits = x.rank() > (axis < 0 ? 0 : axis) && x.dim(axis) == features;
  WEFT_CHECK(fits, "[{}] \"{}\" takes {} features in axis {}. Got {}.", op, layer.path(), features,
             axis, to_string(x.type()));
}
}  // namespace

LayerNorm::LayerNorm(Module& parent, std::string name, int64_t features, const NormOptions& options)
    : Layer(parent, std::move(name)),
      weight(parameter("weight", {features}, Init::constant(1))),
      eps_(options.eps) {
  if (options.bias) bias = parameter("bias", {features}, Init::constant(0));
}
Tensor LayerNorm::forward(const Tensor& x) const {
  check_features(*this, "layer_norm", x, -1, weight.shape()[0]);
  return layer_norm(x, weight.value(), bias.defined() ? bias.value() : Tensor(), eps_);
}

RMSNorm::RMSNorm(Module& parent, std::string name, int64_t features, const RMSNormOptions& options)
    : Layer(parent, std::move(name)),
      weight(parameter("weight", {features}, Init::constant(1 - options.offset))),
      options_(options) {}
Tensor RMSNorm::forward(const Tensor& x) const {
  check_features(*this, "rms_norm", x, -1, weight.shape()[0]);
  if (options_.offset == 0) return rms_norm(x, weight.value(), options_.eps);
  return rms_norm(x, weight.value() + options_.offset, options_.eps);
}

GroupNorm::GroupNorm(Module& parent, std::string name, int64_t groups, int64_t channels, double eps)
    : Layer(parent, std::move(name)),
      weight(parameter("weight", {channels}, Init::constant(1))),
      bias(parameter("bias", {channels}, Init::constant(0))),
      groups_(groups),
      eps_(eps) {
  WEFT_CHECK(groups > 0 && channels % groups == 0,
             "[group_norm] groups must divide the channels. Got {} groups, {} channels.", groups,
             channels);
}
Tensor GroupNorm::forward(const Tensor& x) const {
  check_features(*this, "group_norm", x, 1, weight.shape()[0]);
  return group_norm(x, groups_, weight.value(), bias.value(), eps_);
}

BatchNorm::BatchNorm(Module& parent, std::string name, int64_t channels,
                     const BatchNormOptions& options)
    : Layer(parent, std::move(name)),
      weight(parameter("weight", {channels}, Init::constant(1))),
      bias(parameter("bias", {channels}, Init::constant(0))),
      running_mean(buffer("running_mean", {channels}, 0)),
      running_var(buffer("running_var", {channels}, 1)),
      options_(options) {}

Tensor BatchNorm::forward(const Tensor& x) const {
  check_features(*this, "batch_norm", x, 1, weight.shape()[0]);
  if (current_mode() == Mode::eval)
    return batch_norm_eval(x, running_mean.value(), running_var.value(), weight.value(),
                           bias.value(), options_.eps);
  int64_t count = x.elements() / x.dim(1);
  WEFT_CHECK(count > 1,
             "[batch_norm] \"{}\" needs more than one value per channel in train mode. Got {}.",
             path(), to_string(x.type()));
  weft::BatchNorm batch = batch_norm_train(x, weight.value(), bias.value(), options_.eps);
  double unbiased = static_cast<double>(count) / static_cast<double>(count - 1);
  auto move = [&](const Variable& running, const Tensor& now) {
    Tensor before = running.value();
    running.assign(before + options_.momentum * (stop_gradient(now) - before));
  };
  move(running_mean, batch.mean);
  move(running_var, batch.variance * unbiased);
  return batch.y;
}

}  // namespace weft::nn
