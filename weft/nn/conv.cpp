#include "weft/nn/layers.h"

namespace weft::nn {
namespace {
// Returns [first, second / groups, kernel...], the channels in either order.
Shape weight_shape(int64_t first, int64_t second, const Dims& kernel, int64_t groups,
                   bool transposed) {
  WEFT_CHECK(groups > 0 && first % groups == 0 && second % groups == 0,
             "[conv] groups must divide both channels. Got {} groups, {} in, {} out.", groups,
             transposed ? first : second, transposed ? second : first);
  Shape shape{first, second / groups};
  for (int64_t extent : kernel) shape.push_back(extent);
  return shape;
}
}  // namespace

Dims PerAxis::over(int axes, std::string_view what) const {
  if (values.size() == axes) return values;
  WEFT_CHECK(values.size() == 1, "[{}] takes one number or one per spatial axis ({}). Got {}.",
             what, axes, to_string(values));
  return Dims::filled(axes, values[0]);
}

ConvLayer::ConvLayer(Module& parent, std::string name, const Shape& shape, int64_t out_channels,
                     bool has_bias, const std::optional<Init>& init)
    : Layer(parent, std::move(name)) {
  const Init usual = Init::fan_in(element_count(shape) / shape[0]);
  weight = parameter("weight", shape, init.value_or(usual));
  if (has_bias) bias = parameter("bias", {out_channels}, init ? Init::constant(0) : usual);
}

Conv::Conv(Module& parent, std::string name, int axes, int64_t in_channels, int64_t out_channels,
           const PerAxis& kernel_size, const ConvLayerOptions& options)
    : ConvLayer(parent, std::move(name),
                weight_shape(out_channels, in_channels, kernel_size.over(axes, "conv kernel_size"),
                             options.groups, false),
                out_channels, options.bias, options.init),
      options_{.stride = options.stride.over(axes, "conv stride"),
               .padding = options.padding.over(axes, "conv padding"),
               .dilation = options.dilation.over(axes, "conv dilation"),
               .groups = options.groups} {}

Tensor Conv::forward(const Tensor& x) const {
  int64_t in_channels = weight.shape()[1] * options_.groups;
  WEFT_CHECK(x.rank() == weight.shape().size() && x.dim(1) == in_channels,
             "[conv] \"{}\" takes [batch, {}, {} spatial axes]. Got {}.", path(), in_channels,
             weight.shape().size() - 2, to_string(x.type()));
  return conv(x, weight.value(), bias.defined() ? bias.value() : Tensor(), options_);
}

ConvTranspose::ConvTranspose(Module& parent, std::string name, int axes, int64_t in_channels,
                             int64_t out_channels, const PerAxis& kernel_size,
                             const ConvTransposeLayerOptions& options)
    : ConvLayer(parent, std::move(name),
                weight_shape(in_channels, out_channels, kernel_size.over(axes, "conv kernel_size"),
                             options.groups, true),
                out_channels, options.bias, options.init),
      options_{.stride = options.stride.over(axes, "conv stride"),
               .padding = options.padding.over(axes, "conv padding"),
               .dilation = options.dilation.over(axes, "conv dilation"),
               .output_padding = options.output_padding.over(axes, "conv output_padding"),
               .groups = options.groups} {}

Tensor ConvTranspose::forward(const Tensor& x) const {
  WEFT_CHECK(x.rank() == weight.shape().size() && x.dim(1) == weight.shape()[0],
             "[conv_transpose] \"{}\" takes [batch, {}, {} spatial axes]. Got {}.", path(),
             weight.shape()[0], weight.shape().size() - 2, to_string(x.type()));
  return conv_transpose(x, weight.value(), bias.defined() ? bias.value() : Tensor(), options_);
}

Pool::Pool(Module& parent, std::string name, int axes, const PerAxis& kernel_size,
           const PoolLayerOptions& options)
    : Layer(parent, std::move(name)),
      options_{.kernel = kernel_size.over(axes, "pool kernel_size"),
               .stride = options.stride.value_or(kernel_size).over(axes, "pool stride"),
               .padding = options.padding.over(axes, "pool padding"),
               .count_include_pad = options.count_include_pad} {}

Tensor MaxPool::forward(const Tensor& x) const {
  check_axes(x);
  return max_pool(x, options_);
}
Tensor AvgPool::forward(const Tensor& x) const {
  check_axes(x);
  return avg_pool(x, options_);
}
void Pool::check_axes(const Tensor& x) const {
  const int axes = options_.kernel.size();
  WEFT_CHECK(x.rank() == axes + 2,
             "[pool] \"{}\" takes [batch, channels, {} spatial axes]. Got {}.", path(), axes,
             to_string(x.type()));
}
Tensor GlobalAvgPool2d::forward(const Tensor& x) const { return global_avg_pool(x); }

}  // namespace weft::nn
