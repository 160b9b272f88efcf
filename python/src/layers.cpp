// Products, convolutions, pooling, normalization, attention, losses and random numbers.
#include "python/src/bind.h"

namespace weft::python {
namespace {
using Optional = std::optional<Arg>;

Reduction reduction_named(const std::string& name) {
  if (name == "mean") return Reduction::mean;
  if (name == "sum") return Reduction::sum;
  if (name == "none") return Reduction::none;
  throw Error(ErrorKind::usage, "[loss] reduction is 'mean', 'sum' or 'none'. Got '{}'.", name);
}

template <class Function>
void def_loss(nb::module_& m, const char* name, Function function) {
  m.def(
      name,
      [function](Arg prediction, Arg target, const std::string& reduction) {
        return function(std::move(prediction), std::move(target), reduction_named(reduction));
      },
      "prediction"_a, "target"_a, "reduction"_a = "mean");
}

void bind_products(nb::module_& m) {
  def_operation(m, "matmul", &matmul, "y"_a);
  m.def(
      "einsum",
      [](const std::string& equation, const std::vector<Tensor>& operands) {
        const CallSite site(python_line(), "einsum");
        return einsum(equation, std::span<const Tensor>(operands));
      },
      "equation"_a, "operands"_a);
  m.def(
      "linear",
      [](Arg x, Arg weight, const Optional& bias) {
        return linear(std::move(x), std::move(weight), or_empty(bias));
      },
      "x"_a, "weight"_a, "bias"_a = nb::none());
  m.def("grouped_matmul", &grouped_matmul, "x"_a, "weight"_a, "counts"_a);
  m.def(
      "conv",
      [](Arg x, Arg weight, const Optional& bias, const Dims& stride, const Dims& padding,
         const Dims& dilation, int64_t groups) {
        return conv(std::move(x), std::move(weight), or_empty(bias),
                    {.stride = stride, .padding = padding, .dilation = dilation, .groups = groups});
      },
      "x"_a, "weight"_a, "bias"_a = nb::none(), "stride"_a = Dims(), "padding"_a = Dims(),
      "dilation"_a = Dims(), "groups"_a = 1);
  m.def(
      "conv_transpose",
      [](Arg x, Arg weight, const Optional& bias, const Dims& stride, const Dims& padding,
         const Dims& dilation, const Dims& output_padding, int64_t groups) {
        return conv_transpose(std::move(x), std::move(weight), or_empty(bias),
                              {.stride = stride,
                               .padding = padding,
                               .dilation = dilation,
                               .output_padding = output_padding,
                               .groups = groups});
      },
      "x"_a, "weight"_a, "bias"_a = nb::none(), "stride"_a = Dims(), "padding"_a = Dims(),
      "dilation"_a = Dims(), "output_padding"_a = Dims(), "groups"_a = 1);
}

void bind_pooling(nb::module_& m) {
  def_operation(
      m, "max_pool",
      [](const Arg& x, const Dims& kernel, const Dims& stride, const Dims& padding) {
        return max_pool(x, {.kernel = kernel, .stride = stride, .padding = padding});
      },
      "kernel"_a, "stride"_a = Dims(), "padding"_a = Dims());
  def_operation(
      m, "avg_pool",
      [](const Arg& x, const Dims& kernel, const Dims& stride, const Dims& padding,
         bool count_include_pad) {
        return avg_pool(x, {.kernel = kernel,
                            .stride = stride,
                            .padding = padding,
                            .count_include_pad = count_include_pad});
      },
      "kernel"_a, "stride"_a = Dims(), "padding"_a = Dims(), "count_include_pad"_a = true);
  def_operation(m, "adaptive_avg_pool", &adaptive_avg_pool, "size"_a);
  def_operation(m, "global_avg_pool", &global_avg_pool);
  def_operation(
      m, "interpolate",
      [](const Arg& x, const Dims& size, const std::string& mode, bool align_corners) {
        if (mode != "nearest" && mode != "linear")
          throw Error(ErrorKind::usage, "[interpolate] mode is 'nearest' or 'linear'. Got '{}'.",
                      mode);
        return interpolate(
            x, {.size = size,
                .mode = mode == "linear" ? Interpolation::linear : Interpolation::nearest,
                .align_corners = align_corners});
      },
      "size"_a, "mode"_a = "nearest", "align_corners"_a = false);
}

void bind_norms(nb::module_& m) {
  def_operation(m, "softmax", &softmax, "axis"_a = -1);
  def_operation(m, "log_softmax", &log_softmax, "axis"_a = -1);
  def_operation(
      m, "layer_norm",
      [](const Arg& x, const Optional& weight, const Optional& bias, double eps) {
        return layer_norm(x, or_empty(weight), or_empty(bias), eps);
      },
      "weight"_a = nb::none(), "bias"_a = nb::none(), "eps"_a = 1e-5);
  def_operation(
      m, "rms_norm",
      [](const Arg& x, const Optional& weight, double eps) {
        return rms_norm(x, or_empty(weight), eps);
      },
      "weight"_a = nb::none(), "eps"_a = 1e-6);
  def_operation(
      m, "group_norm",
      [](const Arg& x, int64_t groups, const Optional& weight, const Optional& bias, double eps) {
        return group_norm(x, groups, or_empty(weight), or_empty(bias), eps);
      },
      "groups"_a, "weight"_a = nb::none(), "bias"_a = nb::none(), "eps"_a = 1e-5);
  m.def(
      "batch_norm_train",
      [](Arg x, const Optional& weight, const Optional& bias, double eps) {
        BatchNorm made = batch_norm_train(std::move(x), or_empty(weight), or_empty(bias), eps);
        return std::tuple(made.y, made.mean, made.variance);
      },
      "x"_a, "weight"_a = nb::none(), "bias"_a = nb::none(), "eps"_a = 1e-5);
  m.def(
      "batch_norm_eval",
      [](Arg x, const Arg& mean, const Arg& variance, const Optional& weight, const Optional& bias,
         double eps) {
        return batch_norm_eval(std::move(x), mean.value, variance.value, or_empty(weight),
                               or_empty(bias), eps);
      },
      "x"_a, "mean"_a, "variance"_a, "weight"_a = nb::none(), "bias"_a = nb::none(),
      "eps"_a = 1e-5);
}

void bind_losses(nb::module_& m) {
  m.def(
      "cross_entropy",
      [](Arg logits, Arg labels, int64_t ignore_index, double label_smoothing,
         const std::string& reduction) {
        return cross_entropy(std::move(logits), std::move(labels),
                             {.ignore_index = ignore_index,
                              .label_smoothing = label_smoothing,
                              .reduction = reduction_named(reduction)});
      },
      "logits"_a, "labels"_a, "ignore_index"_a = -100, "label_smoothing"_a = 0,
      "reduction"_a = "mean");
  m.def(
      "nll_loss",
      [](Arg log_probabilities, Arg labels, int64_t ignore_index, const std::string& reduction) {
        return nll_loss(std::move(log_probabilities), std::move(labels), ignore_index,
                        reduction_named(reduction));
      },
      "log_probabilities"_a, "labels"_a, "ignore_index"_a = -100, "reduction"_a = "mean");
  def_loss(m, "mse_loss", &mse_loss);
  def_loss(m, "l1_loss", &l1_loss);
  def_loss(m, "kl_div", &kl_div);
  def_loss(m, "binary_cross_entropy", &binary_cross_entropy);
  def_loss(m, "binary_cross_entropy_with_logits", &binary_cross_entropy_with_logits);
  def_loss(m, "hinge_loss", &hinge_loss);
  m.def(
      "huber_loss",
      [](Arg prediction, Arg target, double delta, const std::string& reduction) {
        return huber_loss(std::move(prediction), std::move(target), delta,
                          reduction_named(reduction));
      },
      "prediction"_a, "target"_a, "delta"_a = 1, "reduction"_a = "mean");
  m.def(
      "smooth_l1_loss",
      [](Arg prediction, Arg target, double beta, const std::string& reduction) {
        return smooth_l1_loss(std::move(prediction), std::move(target), beta,
                              reduction_named(reduction));
      },
      "prediction"_a, "target"_a, "beta"_a = 1, "reduction"_a = "mean");
}

// Random numbers by a key of the caller, whose step is a value: torch's generator gives it.
RandomKey key_of(const Arg& step, int64_t seed, int64_t stream) {
  return {.step = step.value, .seed = seed, .stream = stream};
}

void bind_random(nb::module_& m) {
  def_operation(
      m, "dropout", [](const Arg& x, double probability) { return dropout(x, probability); },
      "probability"_a = 0.5);
  m.def(
      "_uniform",
      [](const Shape& shape, const Arg& step, int64_t seed, int64_t stream) {
        return uniform(shape, key_of(step, seed, stream));
      },
      "shape"_a, "step"_a, "seed"_a, "stream"_a);
  m.def(
      "_normal",
      [](const Shape& shape, const Arg& step, int64_t seed, int64_t stream) {
        return normal(shape, key_of(step, seed, stream));
      },
      "shape"_a, "step"_a, "seed"_a, "stream"_a);
  m.def(
      "_permutation",
      [](int64_t count, const Arg& step, int64_t seed, int64_t stream) {
        return permutation(count, key_of(step, seed, stream));
      },
      "count"_a, "step"_a, "seed"_a, "stream"_a);
}
}  // namespace

void bind_layers(nb::module_& m) {
  bind_products(m);
  bind_pooling(m);
  bind_norms(m);
  m.def(
      "attention",
      [](Arg q, Arg k, Arg v, bool causal, const Optional& mask, std::optional<double> scale,
         int64_t window, double softcap) {
        return attention(std::move(q), std::move(k), std::move(v),
                         {.causal = causal,
                          .mask = or_empty(mask),
                          .scale = scale,
                          .window = window,
                          .softcap = softcap});
      },
      "q"_a, "k"_a, "v"_a, "causal"_a = false, "mask"_a = nb::none(), "scale"_a = nb::none(),
      "window"_a = 0, "softcap"_a = 0);
  m.def(
      "_lstm",
      [](Arg gates, Arg weight, Arg h, Arg c) {
        LstmStates states = lstm(std::move(gates), std::move(weight), std::move(h), std::move(c));
        return std::pair(states.h, states.c);
      },
      "gates"_a, "weight"_a, "h"_a, "c"_a);
  m.def("_gru", &gru, "gates"_a, "weight"_a, "bias"_a, "h"_a);
  bind_losses(m);
  bind_random(m);
}

}  // namespace weft::python
