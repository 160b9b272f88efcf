// Layers of one input: linear, embedding, convolutions, pooling, norms, dropout, activations.
#include "weft/nn/layers.h"

#include "python/src/modules.h"

namespace weft::python {
namespace {
using namespace nn;
using MaybeInit = std::optional<Init>;

void bind_linear(nb::module_& m) {
  nb::class_<Linear, Layer> linear(m, "Linear");
  def_constructor(
      linear,
      +[](Linear* self, Module& parent, std::string name, int64_t in_features, int64_t out_features,
          bool bias, MaybeInit init, bool transposed) {
        new (self) Linear(parent, std::move(name), in_features, out_features,
                          {.bias = bias, .init = init, .transposed = transposed});
      },
      "in_features"_a, "out_features"_a, "bias"_a = true, "init"_a = nb::none(),
      "transposed"_a = false);
  linear.def_prop_ro("weight", member(&Linear::weight))
      .def_prop_ro("bias", member(&Linear::bias))
      .def_prop_ro("in_features", &Linear::in_features);

  nb::class_<Embedding, Layer> embedding(m, "Embedding");
  def_constructor(
      embedding,
      +[](Embedding* self, Module& parent, std::string name, int64_t count, int64_t dimension,
          std::optional<int64_t> padding_idx, MaybeInit init) {
        EmbeddingOptions options{.padding_idx = padding_idx};
        if (init) options.init = *init;
        new (self) Embedding(parent, std::move(name), count, dimension, options);
      },
      "num_embeddings"_a, "embedding_dim"_a, "padding_idx"_a = nb::none(), "init"_a = nb::none());
  embedding.def_prop_ro("weight", member(&Embedding::weight))
      .def(
          "transposed_product",
          [](const Embedding& self, const Arg& x) {
            const CallSite site(x.where, "transposed_product");
            return self.transposed_product(x.value);
          },
          "x"_a);
}

// Returns the options that a convolution and its transpose share.
template <class Options>
Options conv_options(const Dims& stride, const Dims& padding, const Dims& dilation, int64_t groups,
                     bool bias, const MaybeInit& init) {
  return {.stride = stride,
          .padding = padding,
          .dilation = dilation,
          .groups = groups,
          .bias = bias,
          .init = init};
}

// Defines a convolution, or its transpose, whose further arguments are `rest`, in PyTorch's order.
template <class C, class... Args, class... Rest>
void bind_conv(nb::module_& m, const char* name,
               void (*init)(C*, Module&, std::string, int64_t, int64_t, Dims, Dims, Dims, Args...),
               const Rest&... rest) {
  nb::class_<C, ConvLayer> type(m, name);
  def_constructor(type, init, "in_channels"_a, "out_channels"_a, "kernel_size"_a,
                  "stride"_a = Dims{1}, "padding"_a = Dims{0}, rest...);
}

template <class C>
void bind_forward_conv(nb::module_& m, const char* name) {
  bind_conv(
      m, name,
      +[](C* self, Module& parent, std::string child, int64_t in, int64_t out, Dims kernel_size,
          Dims stride, Dims padding, Dims dilation, int64_t groups, bool bias, MaybeInit init) {
        new (self) C(parent, std::move(child), in, out, kernel_size,
                     conv_options<ConvLayerOptions>(stride, padding, dilation, groups, bias, init));
      },
      "dilation"_a = Dims{1}, "groups"_a = 1, "bias"_a = true, "init"_a = nb::none());
}

template <class C>
void bind_transposed_conv(nb::module_& m, const char* name) {
  bind_conv(
      m, name,
      +[](C* self, Module& parent, std::string child, int64_t in, int64_t out, Dims kernel_size,
          Dims stride, Dims padding, Dims output_padding, int64_t groups, bool bias, Dims dilation,
          MaybeInit init) {
        auto options =
            conv_options<ConvTransposeLayerOptions>(stride, padding, dilation, groups, bias, init);
        options.output_padding = output_padding;
        new (self) C(parent, std::move(child), in, out, kernel_size, options);
      },
      "output_padding"_a = Dims{0}, "groups"_a = 1, "bias"_a = true, "dilation"_a = Dims{1},
      "init"_a = nb::none());
}

void bind_convolutions(nb::module_& m) {
  nb::class_<ConvLayer, Layer>(m, "ConvLayer")
      .def_prop_ro("weight", member(&ConvLayer::weight))
      .def_prop_ro("bias", member(&ConvLayer::bias));
  bind_forward_conv<Conv1d>(m, "Conv1d");
  bind_forward_conv<Conv2d>(m, "Conv2d");
  bind_forward_conv<Conv3d>(m, "Conv3d");
  bind_transposed_conv<ConvTranspose1d>(m, "ConvTranspose1d");
  bind_transposed_conv<ConvTranspose2d>(m, "ConvTranspose2d");
  bind_transposed_conv<ConvTranspose3d>(m, "ConvTranspose3d");
}

PoolLayerOptions pooling(const std::optional<Dims>& stride, const Dims& padding) {
  PoolLayerOptions options{.padding = padding};
  if (stride) options.stride = *stride;
  return options;
}
template <class P>
void bind_max_pool(nb::module_& m, const char* name) {
  nb::class_<P, Layer> type(m, name);
  def_constructor(
      type,
      +[](P* self, Module& parent, std::string child, Dims kernel_size, std::optional<Dims> stride,
          Dims padding) {
        new (self) P(parent, std::move(child), kernel_size, pooling(stride, padding));
      },
      "kernel_size"_a, "stride"_a = nb::none(), "padding"_a = Dims{0});
}
template <class P>
void bind_avg_pool(nb::module_& m, const char* name) {
  nb::class_<P, Layer> type(m, name);
  def_constructor(
      type,
      +[](P* self, Module& parent, std::string child, Dims kernel_size, std::optional<Dims> stride,
          Dims padding, bool count_include_pad) {
        PoolLayerOptions options = pooling(stride, padding);
        options.count_include_pad = count_include_pad;
        new (self) P(parent, std::move(child), kernel_size, options);
      },
      "kernel_size"_a, "stride"_a = nb::none(), "padding"_a = Dims{0},
      "count_include_pad"_a = true);
}

template <class L>
void bind_plain(nb::module_& m, const char* name) {
  nb::class_<L, Layer> type(m, name);
  def_constructor(
      type,
      +[](L* self, Module& parent, std::string child) { new (self) L(parent, std::move(child)); });
}

void bind_pools(nb::module_& m) {
  bind_max_pool<MaxPool2d>(m, "MaxPool2d");
  bind_max_pool<MaxPool3d>(m, "MaxPool3d");
  bind_avg_pool<AvgPool2d>(m, "AvgPool2d");
  bind_avg_pool<AvgPool3d>(m, "AvgPool3d");
  bind_plain<GlobalAvgPool2d>(m, "GlobalAvgPool2d");
  bind_plain<Flatten>(m, "Flatten");
}

void bind_norms(nb::module_& m) {
  nb::class_<LayerNorm, Layer> layer_norm(m, "LayerNorm");
  def_constructor(
      layer_norm,
      +[](LayerNorm* self, Module& parent, std::string name, int64_t features, double eps,
          bool bias) {
        new (self) LayerNorm(parent, std::move(name), features, {.eps = eps, .bias = bias});
      },
      "features"_a, "eps"_a = 1e-5, "bias"_a = true);
  layer_norm.def_prop_ro("weight", member(&LayerNorm::weight))
      .def_prop_ro("bias", member(&LayerNorm::bias));

  nb::class_<RMSNorm, Layer> rms_norm(m, "RMSNorm");
  def_constructor(
      rms_norm,
      +[](RMSNorm* self, Module& parent, std::string name, int64_t features, double eps,
          double offset) {
        new (self) RMSNorm(parent, std::move(name), features, {.eps = eps, .offset = offset});
      },
      "features"_a, "eps"_a = 1e-6, "offset"_a = 0.0);
  rms_norm.def_prop_ro("weight", member(&RMSNorm::weight));

  nb::class_<GroupNorm, Layer> group_norm(m, "GroupNorm");
  def_constructor(
      group_norm,
      +[](GroupNorm* self, Module& parent, std::string name, int64_t groups, int64_t channels,
          double eps) { new (self) GroupNorm(parent, std::move(name), groups, channels, eps); },
      "groups"_a, "channels"_a, "eps"_a = 1e-5);
  group_norm.def_prop_ro("weight", member(&GroupNorm::weight))
      .def_prop_ro("bias", member(&GroupNorm::bias));

  nb::class_<nn::BatchNorm, Layer> batch_norm(m, "BatchNorm");
  def_constructor(
      batch_norm,
      +[](nn::BatchNorm* self, Module& parent, std::string name, int64_t channels, double eps,
          double momentum) {
        new (self)
            nn::BatchNorm(parent, std::move(name), channels, {.eps = eps, .momentum = momentum});
      },
      "channels"_a, "eps"_a = 1e-5, "momentum"_a = 0.1);
  batch_norm.def_prop_ro("weight", member(&nn::BatchNorm::weight))
      .def_prop_ro("bias", member(&nn::BatchNorm::bias))
      .def_prop_ro("running_mean", member(&nn::BatchNorm::running_mean))
      .def_prop_ro("running_var", member(&nn::BatchNorm::running_var));
}

void bind_activations(nb::module_& m) {
  nb::class_<Dropout, Layer> dropout(m, "Dropout");
  def_constructor(
      dropout,
      +[](Dropout* self, Module& parent, std::string name, double p) {
        new (self) Dropout(parent, std::move(name), p);
      },
      "p"_a = 0.5);
  nb::class_<Activation, Layer> activation(m, "Activation");
  def_constructor(
      activation,
      +[](Activation* self, Module& parent, std::string name, std::string function) {
        new (self) Activation(parent, std::move(name), function);
      },
      "function"_a);
  m.def("activation_names", [] {
    const std::vector<std::string_view> names = activation_names();
    return std::vector<std::string>(names.begin(), names.end());
  });
}
}  // namespace

void bind_simple_layers(nb::module_& m) {
  bind_linear(m);
  bind_convolutions(m);
  bind_pools(m);
  bind_norms(m);
  bind_activations(m);
}

}  // namespace weft::python
