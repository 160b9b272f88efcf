#include "weft/nn/factory.h"

#include <algorithm>

#include "weft/nn/layers.h"
#include "weft/tensor/compile.h"

namespace weft::nn {
namespace {
// Request has the arguments of the function that makes a kind of layer.
struct Request {
  Module& parent;
  const std::string& name;
  const Type& input;
  OptionReader& options;

  template <class L, class... Args>
  std::unique_ptr<Layer> make(Args&&... args) const {
    return std::make_unique<L>(parent, name, std::forward<Args>(args)...);
  }
  // Returns the extent of an axis that the layer reads; `rank` 0 takes any rank that has the axis.
  int64_t extent(int axis, int rank, std::string_view takes) const {
    const Shape& shape = input.shape;
    bool fits = rank == 0 ? shape.size() > std::max(axis, 0) : shape.size() == rank;
    if (!fits)
      throw Error(ErrorKind::usage, "[{}] takes {}. Got {}.", options.owner(), takes,
                  to_string(input));
    return axis < 0 ? shape[shape.size() + axis] : shape[axis];
  }
  int64_t channels() const { return extent(1, 0, "[batch, channels, ...]"); }
  int64_t features() const { return extent(-1, 0, "[..., features]"); }
  PerAxis per_axis(std::string_view key, std::optional<std::vector<int64_t>> otherwise, int axes,
                   int64_t low) const {
    std::vector<int64_t> values = options.integers(key, std::move(otherwise), low);
    if (values.size() != 1 && values.size() != static_cast<size_t>(axes))
      throw Error(ErrorKind::usage, "[{}] {} takes one number or {}. Got {}.", options.owner(), key,
                  axes, to_string(Option(values)));
    return Dims(std::span<const int64_t>(values));
  }
};

std::unique_ptr<Layer> make_linear(const Request& r) {
  int64_t out = r.options.integer("out_features", {});
  return r.make<Linear>(r.features(), out, LinearOptions{.bias = r.options.flag("bias", true)});
}

std::unique_ptr<Layer> make_embedding(const Request& r) {
  int64_t count = r.options.integer("num_embeddings", {});
  return r.make<Embedding>(count, r.options.integer("embedding_dim", {}));
}

template <class C, int axes>
std::unique_ptr<Layer> make_conv(const Request& r) {
  int64_t in = r.extent(
      1, axes + 2, axes == 1 ? "[batch, channels, length]" : "[batch, channels, height, width]");
  int64_t out = r.options.integer("out_channels", {});
  PerAxis kernel = r.per_axis("kernel_size", {}, axes, 1);
  using List = std::vector<int64_t>;
  ConvLayerOptions options{.stride = r.per_axis("stride", List{1}, axes, 1),
                           .padding = r.per_axis("padding", List{0}, axes, 0),
                           .dilation = r.per_axis("dilation", List{1}, axes, 1),
                           .groups = r.options.integer("groups", 1),
                           .bias = r.options.flag("bias", true)};
  if (in % options.groups != 0 || out % options.groups != 0)
    throw Error(ErrorKind::usage, "[{}] groups must divide in and out channels ({}, {}). Got {}.",
                r.options.owner(), in, out, options.groups);
  return r.make<C>(in, out, kernel, options);
}

template <class P>
std::unique_ptr<Layer> make_pool(const Request& r) {
  r.extent(1, 4, "[batch, channels, height, width]");
  PerAxis kernel = r.per_axis("kernel_size", {}, 2, 1);
  std::vector<int64_t> same(kernel.values.begin(), kernel.values.end());
  PoolLayerOptions options{.stride = r.per_axis("stride", same, 2, 1),
                           .padding = r.per_axis("padding", std::vector<int64_t>{0}, 2, 0)};
  if constexpr (std::is_same_v<P, AvgPool2d>)
    options.count_include_pad = r.options.flag("count_include_pad", true);
  return r.make<P>(kernel, options);
}

std::unique_ptr<Layer> make_global_pool(const Request& r) {
  r.extent(1, 4, "[batch, channels, height, width]");
  return r.make<GlobalAvgPool2d>();
}

std::unique_ptr<Layer> make_batch_norm(const Request& r) {
  return r.make<BatchNorm>(r.channels(),
                           BatchNormOptions{.eps = r.options.number("eps", 1e-5, 0, 1),
                                            .momentum = r.options.number("momentum", 0.1, 0, 1)});
}
std::unique_ptr<Layer> make_layer_norm(const Request& r) {
  return r.make<LayerNorm>(r.features(), NormOptions{.eps = r.options.number("eps", 1e-5, 0, 1),
                                                     .bias = r.options.flag("bias", true)});
}
std::unique_ptr<Layer> make_rms_norm(const Request& r) {
  return r.make<RMSNorm>(r.features(), RMSNormOptions{.eps = r.options.number("eps", 1e-6, 0, 1)});
}
std::unique_ptr<Layer> make_group_norm(const Request& r) {
  int64_t groups = r.options.integer("num_groups", {}), channels = r.channels();
  if (channels % groups != 0)
    throw Error(ErrorKind::usage, "[{}] num_groups must divide the channels ({}). Got {}.",
                r.options.owner(), channels, groups);
  return r.make<GroupNorm>(groups, channels, r.options.number("eps", 1e-5, 0, 1));
}

std::unique_ptr<Layer> make_attention(const Request& r) {
  int64_t width = r.extent(2, 3, "[batch, length, width]");
  int64_t heads = r.options.integer("num_heads", {});
  if (width % heads != 0)
    throw Error(ErrorKind::usage, "[{}] num_heads must divide the width ({}). Got {}.",
                r.options.owner(), width, heads);
  return r.make<SelfAttention>(
      width, heads,
      SelfAttentionOptions{.causal = r.options.flag("causal", false),
                           .bias = r.options.flag("bias", true),
                           .dropout = r.options.number("dropout", 0, 0, 1)});
}

template <class R>
std::unique_ptr<Layer> make_recurrent(const Request& r) {
  int64_t width = r.extent(2, 3, "[batch, time, features]");
  int64_t hidden = r.options.integer("hidden_size", {});
  return r.make<R>(width, hidden,
                   RecurrentOptions{.num_layers = r.options.layers("num_layers", 1),
                                    .bias = r.options.flag("bias", true),
                                    .dropout = r.options.number("dropout", 0, 0, 1),
                                    .bidirectional = r.options.flag("bidirectional", false)});
}

std::unique_ptr<Layer> make_dropout(const Request& r) {
  return r.make<Dropout>(r.options.number("p", 0.5, 0, 1));
}
std::unique_ptr<Layer> make_flatten(const Request& r) { return r.make<Flatten>(); }

struct Maker {
  LayerKind kind;
  std::unique_ptr<Layer> (*make)(const Request&);
};
constexpr Maker makers[] = {
    {{"linear", "out_features, bias", "x W' + b over the last axis"}, make_linear},
    {{"embedding", "num_embeddings, embedding_dim", "embedding: a row of a table for each integer"},
     make_embedding},
    {{"conv1d", "out_channels, kernel_size, stride, padding, dilation, groups, bias",
      "convolution of [batch, channels, length]"},
     make_conv<Conv1d, 1>},
    {{"conv2d", "out_channels, kernel_size, stride, padding, dilation, groups, bias",
      "convolution of [batch, channels, height, width]"},
     make_conv<Conv2d, 2>},
    {{"max_pool2d", "kernel_size, stride, padding", "max pooling: largest value of each window"},
     make_pool<MaxPool2d>},
    {{"avg_pool2d", "kernel_size, stride, padding, count_include_pad",
      "average pooling: mean of each window"},
     make_pool<AvgPool2d>},
    {{"global_avg_pool2d", "", "global average pooling: [batch, channels, 1, 1]"},
     make_global_pool},
    {{"batch_norm", "eps, momentum", "normalizes channels over the batch"}, make_batch_norm},
    {{"layer_norm", "eps, bias", "normalizes the last axis"}, make_layer_norm},
    {{"rms_norm", "eps", "scales the last axis to unit root mean square"}, make_rms_norm},
    {{"group_norm", "num_groups, eps", "normalizes groups of channels"}, make_group_norm},
    {{"attention", "num_heads, causal, bias, dropout", "multi-head self-attention"},
     make_attention},
    {{"lstm", "hidden_size, num_layers, bias, dropout, bidirectional", "LSTM over time"},
     make_recurrent<LSTM>},
    {{"gru", "hidden_size, num_layers, bias, dropout, bidirectional", "GRU over time"},
     make_recurrent<GRU>},
    {{"dropout", "p", "zeros elements with probability p in training"}, make_dropout},
    {{"flatten", "", "[batch, ...] to [batch, rest]"}, make_flatten},
};

[[noreturn]] void unknown_layer(const std::string& name, const std::string& place) {
  std::vector<std::string_view> known;
  for (const LayerKind& kind : layer_kinds()) known.push_back(kind.name);
  throw Error(ErrorKind::usage, "[{}] unknown layer \"{}\". Known: {}.", place, name, join(known));
}
}  // namespace

std::vector<LayerKind> layer_kinds() {
  std::vector<LayerKind> kinds;
  for (const Maker& maker : makers) kinds.push_back(maker.kind);
  for (std::string_view name : activation_names()) kinds.push_back({name, "", "elementwise"});
  return kinds;
}

std::unique_ptr<Layer> make_layer(Module& parent, const std::string& name, const LayerSpec& spec,
                                  const Type& input, const std::string& place) {
  OptionReader options(spec.options, place + "." + spec.name);
  Request request{parent, name, input, options};
  std::unique_ptr<Layer> layer;
  for (const Maker& maker : makers)
    if (maker.kind.name == spec.name) layer = maker.make(request);
  if (layer == nullptr) {
    std::vector<std::string_view> names = activation_names();
    if (std::find(names.begin(), names.end(), spec.name) == names.end())
      unknown_layer(spec.name, place);
    layer = request.make<Activation>(spec.name);
  }
  options.finish();
  return layer;
}

Type add_layers(Sequential& into, std::span<const LayerSpec> specs, const Type& input) {
  ModeScope mode(Mode::eval);  // tracing for types must not touch running statistics
  Type type = input;
  for (size_t i = 0; i < specs.size(); ++i) {
    const UserLocation listed{"layers", static_cast<unsigned>(i)};
    OriginScope scope(into.path(), specs[i].where.file != nullptr ? specs[i].where : listed);
    std::string index = std::to_string(into.size());
    Layer& layer = into.push_back(
        make_layer(into, index, specs[i], type, "layers[" + std::to_string(i) + "]"));
    type = layer(zeros(type.shape, type.dtype)).type();
  }
  return type;
}

}  // namespace weft::nn
