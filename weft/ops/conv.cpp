// Defines convolution (cross-correlation, as deep learning has it) over two spatial axes, and its
// two transposes; convolutions over one and three axes are expressed by it. Each of the three is
// linear in both operands, and its gradients are the other two.
#include <array>
#include <cstddef>
#include <vector>

#include "weft/ir/axis_map.h"
#include "weft/ops/apply.h"
#include "weft/ops/wide.h"

namespace weft {
namespace {
enum Axis { batch_axis, channel_axis, first_spatial };

int64_t out_extent(int64_t in, int64_t kernel, const Attrs& attrs, int spatial) {
  const int64_t stride = attrs.dims("stride")[spatial], dilation = attrs.dims("dilation")[spatial];
  int64_t reach = 0, padded = 0;
  const bool is_countable = stride > 0 && dilation > 0 &&
                            !__builtin_mul_overflow(dilation, kernel - 1, &reach) &&
                            !__builtin_add_overflow(reach, 1, &reach) &&
                            !__builtin_mul_overflow(attrs.dims("padding")[spatial], 2, &padded) &&
                            !__builtin_add_overflow(padded, in, &padded);
  WEFT_ASSERT(is_countable, "a convolution by stride {} and dilation {}", stride, dilation);
  WEFT_CHECK(padded >= reach,
             "[conv] the kernel reaches over {} elements, more than the padded input of {}.", reach,
             padded);
  return (padded - reach) / stride + 1;
}

void check_channels(int64_t in, const Shape& weight, int64_t groups) {
  WEFT_CHECK(groups > 0 && in % groups == 0 && weight[0] % groups == 0,
             "[conv] groups must divide the channels. Got {} groups, {} in, {} out.", groups, in,
             weight[0]);
  WEFT_CHECK(
      weight[1] * groups == in,
      "[conv] the weight takes {} channels in each of {} groups. Got an input of {} channels.",
      weight[1], groups, in);
}

Shape conv_shape(const Shape& x, const Shape& weight, const Attrs& attrs) {
  WEFT_CHECK(
      x.size() == 4 && weight.size() == 4,
      "[conv] needs x[N, C, spatial...] and weight[O, C / groups, kernel...]. Got {} and {}.",
      to_string(x), to_string(weight));
  check_channels(x[channel_axis], weight, attrs.integer("groups"));
  Shape shape{x[batch_axis], weight[0]};
  for (int i = 0; i < 2; ++i)
    shape.push_back(out_extent(x[first_spatial + i], weight[first_spatial + i], attrs, i));
  return shape;
}

void check_dtypes(std::span<const Tensor> inputs) {
  check_numeric(inputs[0].dtype(), "conv");
  WEFT_CHECK(inputs[0].dtype() == inputs[1].dtype(),
             "[conv] operands differ in type. Got {} and {}.", to_string(inputs[0].type()),
             to_string(inputs[1].type()));
}

// Counts multiply-adds twice; there are N O OH OW times C / groups KH KW of them.
double conv_flops(const Shape& y, const Shape& weight) {
  return 2.0 * static_cast<double>(element_count(y)) *
         static_cast<double>(weight[1] * weight[2] * weight[3]);
}

Type conv_type(std::span<const Tensor> inputs, const Attrs& attrs) {
  check_dtypes(inputs);
  return {product_dtype(inputs[0].dtype(), attrs),
          conv_shape(inputs[0].shape(), inputs[1].shape(), attrs)};
}
Type input_gradient_type(std::span<const Tensor> inputs, const Attrs& attrs) {
  check_dtypes(inputs);
  const Shape& x = attrs.dims("input_shape");
  Shape y = conv_shape(x, inputs[1].shape(), attrs);
  WEFT_CHECK(inputs[0].shape() == y, "[conv] the gradient must have shape {}. Got {}.",
             to_string(y), to_string(inputs[0].shape()));
  return {product_dtype(inputs[0].dtype(), attrs), x};
}
Type weight_gradient_type(std::span<const Tensor> inputs, const Attrs& attrs) {
  check_dtypes(inputs);
  const Shape& weight = attrs.dims("weight_shape");
  Shape y = conv_shape(inputs[0].shape(), weight, attrs);
  WEFT_CHECK(inputs[1].shape() == y, "[conv] the gradient must have shape {}. Got {}.",
             to_string(y), to_string(inputs[1].shape()));
  return {product_dtype(inputs[0].dtype(), attrs), weight};
}

// Places says which tensors of a node are x[N, gc, H, W], weight[go, c, KH, KW] and
// y[N, go, OH, OW]: two are operands (by number), the third is the result.
struct Places {
  int x, weight, y;
};
AxisMap conv_axes(const Node& node, const Places& at, std::string_view shape = {}) {
  AxisMap map(node);
  map.shape = shape;
  auto shape_of = [&](int place) -> const Shape& {
    return place == AxisMap::of_result ? node.type.shape
                                       : node.inputs[static_cast<size_t>(place)].shape();
  };
  const Shape &x = shape_of(at.x), &weight = shape_of(at.weight), &y = shape_of(at.y);
  const int64_t groups = node.attrs.integer("groups");
  // Axes that the result lacks are reduced.
  auto lacks = [](int place) {
    return place == AxisMap::of_result ? Relation::reduced : Relation::plain;
  };
  map.relate(node, {.size = x[0], .relation = lacks(at.weight)}, {{at.x, 0}, {at.y, 0}});
  map.relate(node, {.size = groups, .count = "groups"},
             {{at.x, channel_axis}, {at.weight, 0}, {at.y, channel_axis}});
  map.relate(node, {.size = weight[0] / groups, .relation = lacks(at.x)},
             {{at.weight, 0}, {at.y, channel_axis}});
  map.relate(node, {.size = weight[1], .relation = lacks(at.y)},
             {{at.x, channel_axis}, {at.weight, channel_axis}});
  for (int i = 0; i < 2; ++i) {
    const int axis = first_spatial + i;
    const int64_t stride = node.attrs.dims("stride")[i], padding = node.attrs.dims("padding")[i];
    const int64_t dilation = node.attrs.dims("dilation")[i];
    const int64_t reach = (weight[axis] - 1) * dilation;
    auto affine = [&](int result, int operand, const Window& window) {
      map.relate(node, {.size = shape_of(result)[axis], .relation = Relation::affine},
                 {{result, axis}, {operand, axis, window}});
    };
    auto whole = [&](int operand) {
      map.relate(node, {.size = shape_of(operand)[axis], .relation = Relation::whole},
                 {{operand, axis}});
    };
    if (at.y == AxisMap::of_result) {
      affine(at.y, at.x, {.scale = stride, .low = -padding, .high = reach - padding});
      whole(at.weight);
    } else if (at.x == AxisMap::of_result) {
      affine(at.x, at.y, {.low = padding - reach, .high = padding, .divisor = stride});
      whole(at.weight);
    } else {
      affine(at.weight, at.x,
             {.scale = dilation, .low = -padding, .high = (y[axis] - 1) * stride - padding});
      whole(at.y);
    }
  }
  return map;
}

Tensor convolve(const Tensor& x, const Tensor& weight, const Attrs& like);
Tensor input_gradient(const Tensor& dy, const Tensor& weight, const Shape& input,
                      const Attrs& like);
Tensor weight_gradient(const Tensor& x, const Tensor& dy, const Shape& weight, const Attrs& like);

const OpDef& conv_def = define({
    .name = "conv",
    .kind = OpKind::contraction,
    .arity = 2,
    .doc = "y[n,o,p] = sum over c,k of x[n,c, p stride + k dilation - padding] weight[o,c,k]",
    .infer = conv_type,
    .gradient = [](const Tensor& y, const Tensor& dy) -> Gradients {
      const Tensor &x = y->inputs[0], &weight = y->inputs[1];
      return {input_gradient(dy, weight, x.shape(), y->attrs),
              weight_gradient(x, dy, weight.shape(), y->attrs)};
    },
    .family = OpFamily::convolution,
    .flops = [](const Node& n) { return conv_flops(n.type.shape, n.inputs[1].shape()); },
    .axes = [](const Node& n) { return conv_axes(n, {0, 1, AxisMap::of_result}); },
    .narrows = true,
});
const OpDef& conv_input_gradient_def = define({
    .name = "conv_input_gradient",
    .kind = OpKind::contraction,
    .arity = 2,
    .doc =
        "the gradient of conv's x, given that of its result and the weight: transposed convolution",
    .infer = input_gradient_type,
    .gradient = [](const Tensor& y, const Tensor& dy) -> Gradients {
      const Tensor &upstream = y->inputs[0], &weight = y->inputs[1];
      return {convolve(dy, weight, y->attrs),
              weight_gradient(dy, upstream, weight.shape(), y->attrs)};
    },
    .family = OpFamily::convolution,
    .role = Role::input_gradient,
    .flops = [](const Node& n) { return conv_flops(n.inputs[0].shape(), n.inputs[1].shape()); },
    .axes = [](const Node& n) { return conv_axes(n, {AxisMap::of_result, 1, 0}, "input_shape"); },
    .narrows = true,
});
const OpDef& conv_weight_gradient_def = define({
    .name = "conv_weight_gradient",
    .kind = OpKind::contraction,
    .arity = 2,
    .doc = "the gradient of conv's weight, given its x and the gradient of its result",
    .infer = weight_gradient_type,
    .gradient = [](const Tensor& y, const Tensor& dy) -> Gradients {
      const Tensor &x = y->inputs[0], &upstream = y->inputs[1];
      return {input_gradient(upstream, dy, x.shape(), y->attrs), convolve(x, dy, y->attrs)};
    },
    .family = OpFamily::convolution,
    .role = Role::weight_gradient,
    .flops = [](const Node& n) { return conv_flops(n.inputs[1].shape(), n.type.shape); },
    .axes = [](const Node& n) { return conv_axes(n, {0, AxisMap::of_result, 1}, "weight_shape"); },
    .narrows = true,
});

bool is_byte(DType dtype) { return !is_float(dtype) && info(dtype).bits == 8; }

const OpDef& conv_mixed_def = define({
    .name = "conv_mixed",
    .arity = 2,
    .doc = "conv of two types of integers of 8 bits, whose sums are i32",
    .infer = [](std::span<const Tensor> inputs, const Attrs& attrs) -> Type {
      for (const Tensor& input : inputs)
        WEFT_CHECK(is_byte(input.dtype()),
                   "[conv] operands of two types are integers of 8 bits. Got {} and {}.",
                   to_string(inputs[0].type()), to_string(inputs[1].type()));
      return {DType::i32, conv_shape(inputs[0].shape(), inputs[1].shape(), attrs)};
    },
    .decompose = [](const Node& node) -> Tensor {
      return convolve(cast(node.inputs[0], DType::i32), cast(node.inputs[1], DType::i32),
                      node.attrs);
    },
    .family = OpFamily::convolution,
    .flops = [](const Node& n) { return conv_flops(n.type.shape, n.inputs[1].shape()); },
    .axes = [](const Node& n) { return conv_axes(n, {0, 1, AxisMap::of_result}); },
    .test = {.floats = false, .integers = true, .no_gradient = "multiplies integers"},
});

Tensor convolve(const Tensor& x, const Tensor& weight, const Attrs& like) {
  return make_node(conv_def, {x, weight},
                   {{"stride", like.dims("stride")},
                    {"padding", like.dims("padding")},
                    {"dilation", like.dims("dilation")},
                    {"groups", like.integer("groups")}});
}
Tensor input_gradient(const Tensor& dy, const Tensor& weight, const Shape& input,
                      const Attrs& like) {
  return make_node(conv_input_gradient_def, {dy, weight},
                   {{"input_shape", input},
                    {"stride", like.dims("stride")},
                    {"padding", like.dims("padding")},
                    {"dilation", like.dims("dilation")},
                    {"groups", like.integer("groups")}});
}
Tensor weight_gradient(const Tensor& x, const Tensor& dy, const Shape& weight, const Attrs& like) {
  return make_node(conv_weight_gradient_def, {x, dy},
                   {{"weight_shape", weight},
                    {"stride", like.dims("stride")},
                    {"padding", like.dims("padding")},
                    {"dilation", like.dims("dilation")},
                    {"groups", like.integer("groups")}});
}

// Returns one number per spatial axis; one-dimensional convolutions get a first axis of extent 1.
Dims per_axis(const Dims& given, int spatial, int64_t otherwise, int64_t least, const char* what) {
  Dims full = given.empty() ? Dims::filled(spatial, otherwise) : given;
  if (full.size() == 1 && spatial > 1) full = Dims::filled(spatial, given[0]);
  WEFT_CHECK(full.size() == spatial, "[conv] {} has one number per spatial axis ({}). Got {}.",
             what, spatial, to_string(given));
  for (int64_t value : full)
    WEFT_CHECK(value >= least, "[conv] {} must be at least {}. Got {}.", what, least,
               to_string(given));
  return spatial == 1 ? Dims{otherwise, full[0]} : full;
}

// Adds the bias of the channels to y, and drops the axis that a one-dimensional convolution got.
Tensor finished(Tensor y, const Tensor& bias, int spatial) {
  if (bias.defined()) {
    const int64_t channels = y.dim(channel_axis);
    WEFT_CHECK(bias.shape() == Shape{channels}, "[conv] the bias must have shape [{}]. Got {}.",
               channels, to_string(bias.shape()));
    Shape along(Dims::filled(y.rank(), 1));
    along[channel_axis] = channels;
    y = y + reshape(bias, along);
  }
  return spatial == 1 ? squeeze(y, first_spatial) : y;
}

// A convolution over three axes is a convolution over two, of N * OD images: the channels of an
// image are the channels of the KD slices that one slice of the result reads.
struct Volumes {
  Volumes(const Tensor& weight, const Attrs& attrs)
      : weight(weight),
        kernel(
            reshape(weight, {weight.dim(0), weight.dim(1) * depths, weight.dim(3), weight.dim(4)})),
        attrs{{"stride", last_two(attrs.dims("stride"))},
              {"padding", last_two(attrs.dims("padding"))},
              {"dilation", last_two(attrs.dims("dilation"))},
              {"groups", attrs.integer("groups")}},
        stride(attrs.dims("stride")[0]),
        padding(attrs.dims("padding")[0]),
        dilation(attrs.dims("dilation")[0]) {}
  static Dims last_two(const Dims& dims) { return {dims[1], dims[2]}; }

  // Returns the padded slices, of [N, D, C, H, W], that slice `k` of the kernel reads for each
  // slice of the result: [N, out, C, H, W].
  Tensor read(const Tensor& slices, int64_t k, int64_t out) const {
    return slice(slices, 1, k * dilation, k * dilation + (out - 1) * stride + 1, stride);
  }

  const Tensor weight;
  const int64_t depths = weight.dim(2);
  const Tensor kernel;  // the weight of the convolution over images
  const Attrs attrs;    // attributes of that convolution
  const int64_t stride, padding, dilation;
};

// x[N, C, D, H, W] weight[O, C / groups, KD, KH, KW] -> [N, O, OD, OH, OW]
Tensor volume_conv(const Tensor& x, const Tensor& weight, const Attrs& attrs) {
  check_channels(x.dim(1), weight.shape(), attrs.integer("groups"));
  const Volumes of(weight, attrs);
  const int64_t out = out_extent(x.dim(2), of.depths, attrs, 0);
  const Tensor slices =
      permute(pad(x, {0, 0, of.padding, 0, 0}, {0, 0, of.padding, 0, 0}), {0, 2, 1, 3, 4});
  std::vector<Tensor> read;
  read.reserve(static_cast<size_t>(of.depths));
  for (int64_t k = 0; k < of.depths; ++k) read.push_back(of.read(slices, k, out));
  const Tensor images =
      reshape(stack(read, 3), {x.dim(0) * out, x.dim(1) * of.depths, x.dim(3), x.dim(4)});
  const Tensor y = convolve(images, of.kernel, of.attrs);
  return permute(reshape(y, {x.dim(0), out, y.dim(1), y.dim(2), y.dim(3)}), {0, 2, 1, 3, 4});
}

// Transposes the convolution, dy[N, O, OD, OH, OW] -> x[N, C, D, H, W]: the transposes of its
// operations, in reverse order.
Tensor volume_input_gradient(const Tensor& dy, const Tensor& weight, const Shape& x,
                             const Attrs& attrs) {
  check_channels(x[1], weight.shape(), attrs.integer("groups"));
  const Volumes of(weight, attrs);
  const int64_t out = dy.dim(2);
  const Tensor upstream =
      reshape(permute(dy, {0, 2, 1, 3, 4}), {dy.dim(0) * out, dy.dim(1), dy.dim(3), dy.dim(4)});
  const Attrs attrs_of_parts =
      computes_wider(dy.dtype()) ? of.attrs.with({"wide", int64_t{1}}) : of.attrs;
  const Tensor images = input_gradient(upstream, of.kernel,
                                       {x[0] * out, x[1] * of.depths, x[3], x[4]}, attrs_of_parts);
  const Tensor parts = reshape(images, {x[0], out, x[1], of.depths, x[3], x[4]});
  // Only the shape of `slices` matters.
  const Tensor slices = input({images.dtype(), {x[0], x[2] + 2 * of.padding, x[1], x[3], x[4]}}, 0);
  Tensor sum;
  for (int64_t k = 0; k < of.depths; ++k) {
    const Tensor read = of.read(slices, k, out);
    Tensor part = squeeze(slice(parts, 3, k, k + 1), 3);
    if (read->is("slice")) part = read->op->gradient(read, part)[0];
    sum = sum.defined() ? sum + part : part;
  }
  sum = narrow_to(slice(sum, 1, of.padding, of.padding + x[2]), dy.dtype());
  return permute(sum, {0, 2, 1, 3, 4});
}
}  // namespace

Tensor conv(Arg x, Arg weight, const Tensor& bias, const ConvOptions& options) {
  CallSite here(x.where);
  Tensor input = to_value(x, {}), kernel = to_value(weight, {});
  int spatial = input.rank() - first_spatial;
  WEFT_CHECK(
      spatial >= 1 && spatial <= 3 && kernel.rank() == input.rank(),
      "[conv] needs x[N, C, spatial...] and weight[O, C / groups, kernel...] with one to three "
      "spatial axes. Got {} and {}.",
      to_string(input.shape()), to_string(kernel.shape()));
  Attrs attrs{{"stride", per_axis(options.stride, spatial, 1, 1, "stride")},
              {"padding", per_axis(options.padding, spatial, 0, 0, "padding")},
              {"dilation", per_axis(options.dilation, spatial, 1, 1, "dilation")},
              {"groups", options.groups}};
  if (spatial == 1) {
    input = unsqueeze(input, first_spatial);
    kernel = unsqueeze(kernel, first_spatial);
  }
  if (spatial == 3) {
    check_dtypes(std::array{input, kernel});
    return finished(volume_conv(input, kernel, attrs), bias, spatial);
  }
  const bool mixed = input.dtype() != kernel.dtype() && is_byte(input.dtype());
  return finished(make_node(mixed ? conv_mixed_def : conv_def, {input, kernel}, attrs), bias,
                  spatial);
}
Tensor conv_transpose(Arg x, Arg weight, const Tensor& bias, const ConvTransposeOptions& options) {
  CallSite here(x.where);
  Tensor input = to_value(x, {}), kernel = to_value(weight, {});
  const int spatial = input.rank() - first_spatial;
  WEFT_CHECK(spatial >= 1 && spatial <= 3 && kernel.rank() == input.rank() &&
                 kernel.dim(0) == input.dim(channel_axis),
             "[conv_transpose] needs x[N, C, spatial...] and weight[C, O / groups, kernel...] with "
             "one to three spatial axes. Got {} and {}.",
             to_string(input.shape()), to_string(kernel.shape()));
  const Dims stride = per_axis(options.stride, spatial, 1, 1, "stride");
  const Dims padding = per_axis(options.padding, spatial, 0, 0, "padding");
  const Dims dilation = per_axis(options.dilation, spatial, 1, 1, "dilation");
  const Dims further = per_axis(options.output_padding, spatial, 0, 0, "output_padding");
  if (spatial == 1) {
    input = unsqueeze(input, first_spatial);
    kernel = unsqueeze(kernel, first_spatial);
  }
  Shape shape{input.dim(0), kernel.dim(channel_axis) * options.groups};
  for (int i = 0; i < stride.size(); ++i) {
    const int axis = first_spatial + i;
    const int64_t extent = (input.dim(axis) - 1) * stride[i] - 2 * padding[i] +
                           dilation[i] * (kernel.dim(axis) - 1) + further[i] + 1;
    WEFT_CHECK(further[i] < stride[i],
               "[conv_transpose] output_padding must be below the stride. Got {} and {}.",
               to_string(further), to_string(stride));
    WEFT_CHECK(extent > 0, "[conv_transpose] axis {} of the result would have extent {}.",
               spatial == 1 ? first_spatial : axis, extent);
    shape.push_back(extent);
  }
  const Attrs attrs{
      {"stride", stride}, {"padding", padding}, {"dilation", dilation}, {"groups", options.groups}};
  if (spatial == 3) {
    check_dtypes(std::array{input, kernel});
    return finished(volume_input_gradient(input, kernel, shape, attrs), bias, spatial);
  }
  return finished(input_gradient(input, kernel, shape, attrs), bias, spatial);
}
Tensor conv1d(Arg x, Arg weight, const Tensor& bias, const ConvOptions& options) {
  CallSite here(x.where);
  WEFT_CHECK(to_value(x, {}).rank() == 3, "[conv1d] needs x[N, C, L]. Got {}.",
             to_string(to_value(x, {}).shape()));
  return conv(x, weight, bias, options);
}
Tensor conv2d(Arg x, Arg weight, const Tensor& bias, const ConvOptions& options) {
  CallSite here(x.where);
  WEFT_CHECK(to_value(x, {}).rank() == 4, "[conv2d] needs x[N, C, H, W]. Got {}.",
             to_string(to_value(x, {}).shape()));
  return conv(x, weight, bias, options);
}
Tensor conv3d(Arg x, Arg weight, const Tensor& bias, const ConvOptions& options) {
  CallSite here(x.where);
  WEFT_CHECK(to_value(x, {}).rank() == 5, "[conv3d] needs x[N, C, D, H, W]. Got {}.",
             to_string(to_value(x, {}).shape()));
  return conv(x, weight, bias, options);
}
}  // namespace weft
