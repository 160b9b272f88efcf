// Maps ONNX's products, convolutions, normalizations and dropout.
#include <algorithm>

#include "weft/onnx/net/interpreter.h"
#include "weft/onnx/operators/operators.h"
#include "weft/onnx/operators/unrounded.h"
#include "weft/onnx/operators/windows.h"
#include "weft/tensor/compile.h"
#include "weft/tensor/wide.h"

namespace weft::onnx {
namespace {
using Tensors = std::vector<Tensor>;

// ---- products

Tensors matmul_operator(const Call& call) {
  return {product_or_sum({call[0], call[1]}, [](std::span<const Tensor> factors, bool wide) {
    return wide ? wide_matmul(factors[0], factors[1]) : matmul(factors[0], factors[1]);
  })};
}

Tensors gemm(const Call& call) {
  Tensor a = call[0], b = call[1];
  if (a.rank() != 2 || b.rank() != 2)
    call.refuse("its operands are matrices. Got {} and {}", to_string(a.type()),
                to_string(b.type()));
  if (call.flag("transA")) a = transpose(a);
  if (call.flag("transB")) b = transpose(b);
  const double alpha = call.number("alpha", 1.0), beta = call.number("beta", 1.0);
  Tensor y = product_or_sum({a, b}, [&](std::span<const Tensor> factors, bool wide) {
    if (alpha == 1 && !wide) return matmul(factors[0], factors[1]);
    const Tensor product = wide_matmul(factors[0], factors[1]) * alpha;
    return wide ? product : narrow_to(product, a.dtype());
  });
  if (!call.has(2) || beta == 0) return {y};
  return {y + (beta == 1 ? call[2] : cast(call[2] * beta, y.dtype()))};
}

Tensors einsum_operator(const Call& call) {
  std::string equation = call.text("equation");
  std::erase(equation, ' ');
  return {product_or_sum(call.all(), [&](std::span<const Tensor> factors, bool wide) {
    return wide ? einsum(equation, widened(factors)) : einsum(equation, factors);
  })};
}

// ---- convolutions

Dims spatial(const Shape& shape) {
  Dims dims;
  for (int i = 2; i < shape.size(); ++i) dims.push_back(shape[i]);
  return dims;
}

Tensors conv_operator(const Call& call) {
  Tensor x = call[0];
  Windows windows = windows_of(call, x.shape(), spatial(call[1].shape()));
  if (!windows.is_symmetric()) {
    x = padded(x, windows, 0);
    windows.low = Dims::filled(windows.axes(), 0);
  }
  const Tensor bias = call.optional(2);
  return {product_or_sum({x, call[1]}, [&](std::span<const Tensor> given, bool wide) {
    const std::vector<Tensor> factors =
        wide ? widened(given) : std::vector(given.begin(), given.end());
    return conv(factors[0], factors[1], wide && bias.defined() ? widen(bias) : bias,
                {.stride = windows.stride,
                 .padding = windows.low,
                 .dilation = windows.dilation,
                 .groups = call.integer("group", 1)});
  })};
}

// Cuts the spatial axes of a transposed convolution without padding to `size` elements from `first`
// on; missing elements at the end are zeros.
Tensor cut_ends(const Tensor& whole, const Dims& first, const Dims& size) {
  Tensor y = whole;
  for (int i = 0; i < first.size(); ++i) {
    const int axis = i + 2;
    const int64_t missing = first[i] + size[i] - y.dim(axis);
    if (missing > 0) {
      Dims high = Dims::filled(y.rank(), 0);
      high[axis] = missing;
      y = pad(y, Dims::filled(y.rank(), 0), high);
    }
    y = slice(y, axis, first[i], first[i] + size[i]);
  }
  return y;
}

// TransposedWindows is the geometry of a transposed convolution, by spatial axis. Its output is a
// slice of the result without padding: `size` elements from element `first` on.
struct TransposedWindows {
  Dims kernel, stride, dilation, first, size;
};
TransposedWindows transposed_windows(const Call& call) {
  const Tensor& x = call[0];
  const Dims kernel = spatial(call[1].shape());
  const int axes = kernel.size();
  const auto list = [&](const char* name, int64_t otherwise) {
    const std::vector<int64_t> given = call.integers(name);
    if (!given.empty() && std::ssize(given) != axes)
      call.refuse("attribute '{}' has {} numbers for {} spatial axes", name, given.size(), axes);
    return given.empty() ? Dims::filled(axes, otherwise) : Dims(given);
  };
  const Dims stride = list("strides", 1), dilation = list("dilations", 1);
  const Dims more = list("output_padding", 0), wanted = list("output_shape", -1);
  const std::string automatic = call.text("auto_pad", "NOTSET");
  const std::vector<int64_t> pads = call.integers("pads");
  Dims first = Dims::filled(axes, 0), size = first;
  for (int i = 0; i < axes; ++i) {
    const int64_t whole =
        (x.dim(i + 2) - 1) * stride[i] + dilation[i] * (kernel[i] - 1) + 1 + more[i];
    size[i] = whole;
    const bool same = automatic == "SAME_UPPER" || automatic == "SAME_LOWER";
    if (same || wanted[i] >= 0) {
      size[i] = wanted[i] >= 0 ? wanted[i] : x.dim(i + 2) * stride[i];
      const int64_t total = std::max<int64_t>(whole - size[i], 0);
      first[i] = automatic == "SAME_UPPER" ? total / 2 : total - total / 2;
    } else if (!pads.empty()) {
      if (std::ssize(pads) != 2 * axes)
        call.refuse("attribute 'pads' has {} numbers for {} spatial axes", pads.size(), axes);
      first[i] = pads[static_cast<size_t>(i)];
      size[i] = whole - first[i] - pads[static_cast<size_t>(i) + static_cast<size_t>(axes)];
    }
    if (size[i] < 1 || first[i] < 0) call.refuse("its padding leaves no element along an axis");
  }
  return {kernel, stride, dilation, first, size};
}

Tensors conv_transpose_operator(const Call& call) {
  const Tensor &x = call[0], &weight = call[1];
  const auto [kernel, stride, dilation, first, size] = transposed_windows(call);
  const int axes = kernel.size();
  ConvTransposeOptions options{.stride = stride,
                               .padding = first,
                               .dilation = dilation,
                               .output_padding = Dims::filled(axes, 0),
                               .groups = call.integer("group", 1)};
  bool is_plain = true;
  for (int i = 0; i < axes; ++i) {
    const int64_t own =
        (x.dim(i + 2) - 1) * stride[i] - 2 * first[i] + dilation[i] * (kernel[i] - 1) + 1;
    options.output_padding[i] = size[i] - own;
    is_plain = is_plain && options.output_padding[i] >= 0 && options.output_padding[i] < stride[i];
  }
  const auto transposed = [&](std::span<const Tensor> given, bool wide, const Tensor& bias) {
    if (!wide) return conv_transpose(given[0], given[1], bias, options);
    return conv_transpose(widen(given[0]), widen(given[1]), bias.defined() ? widen(bias) : bias,
                          options);
  };
  if (is_plain)
    return {product_or_sum({x, weight}, [&](std::span<const Tensor> given, bool wide) {
      return transposed(given, wide, call.optional(2));
    })};
  options.padding = options.output_padding = Dims::filled(axes, 0);
  Tensor y = product_or_sum({x, weight}, [&](std::span<const Tensor> given, bool wide) {
    return cut_ends(transposed(given, wide, {}), first, size);
  });
  if (!call.has(2)) return {y};
  Shape channels = Dims::filled(y.rank(), 1);
  channels[1] = y.dim(1);
  return {y + reshape(call[2], channels)};
}

// ---- normalizations

// Running statistics that are state of the model are updated in training mode and used in
// evaluation mode, whatever the file's training_mode says: it tells only how the file was exported.
Tensors batch_normalization(const Call& call) {
  if (!call.flag("spatial", true))  // of opsets before 9
    call.refuse("its statistics are of each place ('spatial' is 0), which weft does not compute");
  const Tensor &x = call[0], &mean = call[3], &variance = call[4];
  const double epsilon = call.number("epsilon", 1e-5), momentum = call.number("momentum", 0.9);
  const Variable running_mean = call.interpreter().variable_of(mean);
  const Variable running_variance = call.interpreter().variable_of(variance);
  const bool is_state = running_mean.defined() && running_variance.defined();
  const bool trains = is_state ? current_mode() == Mode::train
                               : call.flag("training_mode") ||
                                     (call.opset() < 14 && call.results() > 1 && call.wants(1));
  if (!trains)
    return {batch_norm_eval(x, mean, variance, call[1], call[2], epsilon), mean, variance};
  const BatchNorm batch = batch_norm_train(x, call[1], call[2], epsilon);
  // State keeps the unbiased variance, as in PyTorch; other results have the biased one of the
  // specification.
  const double count = static_cast<double>(x.elements()) / static_cast<double>(x.dim(1));
  const double correction = is_state && count > 1 ? count / (count - 1) : 1;
  const Tensor next_mean = mean * momentum + cast(batch.mean, mean.dtype()) * (1 - momentum);
  const Tensor next_variance =
      variance * momentum + cast(batch.variance, mean.dtype()) * ((1 - momentum) * correction);
  if (is_state) {
    running_mean.assign(next_mean);
    running_variance.assign(next_variance);
  }
  return {batch.y, next_mean, next_variance};
}

Tensors instance_normalization(const Call& call) {
  const Tensor& x = call[0];
  return {group_norm(x, x.dim(1), call[1], call[2], call.number("epsilon", 1e-5))};
}

// Before opset 21, scale and bias have one element per group instead of one per channel.
Tensors group_normalization(const Call& call) {
  const Tensor& x = call[0];
  const int64_t groups = call.integer("num_groups");
  if (groups < 1 || x.rank() < 2 || x.dim(1) % groups != 0)
    call.refuse("{} do not form {} groups of channels", to_string(x.type()), groups);
  Tensor scale = call[1], bias = call[2];
  if (call.opset() < 21) {
    scale = repeat(scale, x.dim(1) / groups, 0);
    bias = repeat(bias, x.dim(1) / groups, 0);
  }
  return {group_norm(x, groups, scale, bias, call.number("epsilon", 1e-5))};
}

// A Normalized is an operand whose axes from `axis` on are normalized together.
struct Normalized {
  Tensor rows;   // x as [M, K]
  Shape beside;  // shape of statistics: extents of 1 from `axis` on
  int64_t inner = 1;
};
Normalized rows_of(const Call& call, const Tensor& x) {
  const int axis = call.axis("axis", -1, x.rank());
  Normalized parts{.rows = as_matrix(x, axis), .beside = x.shape()};
  for (int i = axis; i < x.rank(); ++i) parts.beside[i] = 1;
  parts.inner = parts.rows.dim(1);
  return parts;
}
// Returns scale or bias as [K] where it has an element for each of the K that are normalized
// together; else empty.
Tensor as_row(const Tensor& values, const Normalized& parts) {
  return values.defined() && values.elements() == parts.inner ? reshape(values, {parts.inner})
                                                              : Tensor();
}

Tensors layer_normalization(const Call& call) {
  const Tensor& x = call[0];
  const double epsilon = call.number("epsilon", 1e-5);
  const Normalized parts = rows_of(call, x);
  const Tensor scale = as_row(call[1], parts), bias = as_row(call.optional(2), parts);
  Tensor y;
  if (scale.defined() && bias.defined() == call.has(2)) {
    y = reshape(layer_norm(parts.rows, scale, bias, epsilon), x.shape());
  } else {
    y = reshape(layer_norm(widen(parts.rows), {}, {}, epsilon), x.shape()) * widen(call[1]);
    if (call.has(2)) y = y + widen(call[2]);
    y = narrow_to(y, x.dtype());
  }
  if (!call.wants(1) && !call.wants(2)) return {y};
  const Tensor wide = cast(parts.rows, DType::f32);
  const ReduceOptions over{.axes = {1}, .keepdim = true};
  const Tensor centre = mean(wide, over);
  const Tensor deviation = rsqrt(variance(wide, over, 0) + epsilon);
  return {y, reshape(centre, parts.beside), reshape(deviation, parts.beside)};
}

Tensors rms_normalization(const Call& call) {
  const Tensor& x = call[0];
  const double epsilon = call.number("epsilon", 1e-5);
  const Normalized parts = rows_of(call, x);
  const Tensor scale = as_row(call[1], parts);
  if (scale.defined()) return {reshape(rms_norm(parts.rows, scale, epsilon), x.shape())};
  const Tensor rows = rms_norm(widen(parts.rows), {}, epsilon);
  return {narrow_to(reshape(rows, x.shape()) * widen(call[1]), x.dtype())};
}

// Local response normalization (Krizhevsky et al. 2012) across channels.
Tensors lrn(const Call& call) {
  const Tensor& x = call[0];
  const int64_t size = call.integer("size");
  const double alpha = call.number("alpha", 1e-4), beta = call.number("beta", 0.75);
  constexpr int64_t most_channels = int64_t{1} << 16;
  if (size < 1 || x.rank() < 2) call.refuse("its size is at least 1, of channels. Got {}", size);
  // A window reaches no further than the outermost channel, however large its size.
  const int64_t last = std::max<int64_t>(x.dim(1) - 1, 0);
  Dims low = Dims::filled(x.rank(), 0), high = low;
  low[1] = std::min((size - 1) / 2, last);
  high[1] = std::min(size - 1 - (size - 1) / 2, last);
  const int64_t count = low[1] + 1 + high[1];
  if (count > most_channels)
    call.refuse("it sums more than {} channels. Got {}", most_channels, count);
  const Tensor wide = widen(x), squares = pad(wide * wide, low, high);
  Tensor total;
  for (int64_t i = 0; i < count; ++i) {
    const Tensor part = slice(squares, 1, i, i + x.dim(1));
    total = total.defined() ? total + part : part;
  }
  const Tensor scale = total * (alpha / static_cast<double>(size)) + call.number("bias", 1.0);
  return {narrow_to(wide / pow(scale, scalar(beta, wide.dtype())), x.dtype())};
}

// ---- dropout

// Drops only where the model trains and the file asks for it.
Tensors dropout_operator(const Call& call) {
  const Tensor& x = call[0];
  const double ratio = call.opset() < 12 ? call.number("ratio", 0.5)
                       : call.has(1)     ? call.number_at(1)
                                         : 0.5;
  const bool asked = call.opset() < 12 || (call.has(2) && call.number_at(2) != 0);
  if (current_mode() != Mode::train || !asked || ratio == 0)
    return {x, full(x.shape(), 1, DType::boolean)};
  const Tensor kept = bernoulli(1 - ratio, x.shape());
  return {select(kept, cast(x * (1 / (1 - ratio)), x.dtype()), zeros_like(x)), kept};
}

const Operator layer_rows[] = {
    {"BatchNormalization",
     "5 -> 5 3@14: consumed_inputs epsilon is_test momentum spatial training_mode@14",
     batch_normalization, "", 0, 0b11000},
    {"Conv", "3 -> 1: auto_pad dilations group kernel_shape pads strides", conv_operator},
    {"ConvTranspose",
     "3 -> 1: auto_pad dilations group kernel_shape output_padding output_shape pads strides",
     conv_transpose_operator},
    {"Dropout", "1 3@12 -> 2: consumed_inputs is_test ratio@-11 seed@12", dropout_operator, "",
     0b110},
    {"Einsum", "@12 * -> 1: equation", einsum_operator},
    {"Gemm", "3 -> 1: alpha beta broadcast transA transB", gemm},
    {"GroupNormalization", "@18 3 -> 1: epsilon num_groups stash_type@21", group_normalization},
    {"InstanceNormalization", "3 -> 1: consumed_inputs epsilon", instance_normalization},
    {"LRN", "1 -> 1: alpha beta bias size", lrn},
    {"LayerNormalization", "@17 3 -> 3: axis epsilon stash_type", layer_normalization},
    {"MatMul", "2 -> 1", matmul_operator},
    {"RMSNormalization", "@23 2 -> 1: axis epsilon stash_type", rms_normalization},
};
}  // namespace

std::span<const Operator> layer_operators() { return layer_rows; }

}  // namespace weft::onnx
