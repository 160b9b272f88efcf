// Defines softmax and normalization. Forward and backward are elementwise operations and reductions
// over one set of axes, with no movement between them, so that each becomes one kernel by rows.
#include "weft/ops/apply.h"
#include "weft/ops/wide.h"

namespace weft {
namespace {
ReduceOptions over(const Dims& axes) { return {.axes = axes, .keepdim = true}; }
ReduceOptions over_axis(const Node& node) { return over({node.attrs.integer("axis")}); }

// ---- softmax
const OpDef& softmax_def = define({
    .name = "softmax",
    .doc = "exp(x - max) / sum of it, along attr axis",
    .infer = same_type,
    .gradient = [](const Tensor& y, const Tensor& dy) -> Gradients {
      Tensor p = widen(y), dp = widen(dy);
      Tensor dx = p * (dp - sum(dp * p, over_axis(*y.node())));
      return {narrow_to(dx, y.dtype())};
    },
    .decompose =
        [](const Node& node) {
          return in_wide(node.inputs[0], [&](const Tensor& x) {
            if (x.elements() == 0) return x;
            ReduceOptions row = over_axis(node);
            Tensor e = exp(x - max(x, row));
            return e * (1.0 / sum(e, row));  // one division per row
          });
        },
    .test = {.low = -4, .high = 4},
});

const OpDef& log_softmax_def = define({
    .name = "log_softmax",
    .doc = "x - log(sum(exp(x))), along attr axis",
    .infer = same_type,
    .gradient = [](const Tensor& y, const Tensor& dy) -> Gradients {
      Tensor upstream = widen(dy);
      Tensor dx = upstream - exp(widen(y)) * sum(upstream, over_axis(*y.node()));
      return {narrow_to(dx, y.dtype())};
    },
    .decompose =
        [](const Node& node) {
          return in_wide(node.inputs[0], [&](const Tensor& x) {
            if (x.elements() == 0) return x;
            ReduceOptions row = over_axis(node);
            Tensor shifted = x - max(x, row);
            return shifted - log(sum(exp(shifted), row));
          });
        },
    .test = {.low = -4, .high = 4},
});

Tensor along_axis(const OpDef& def, const Arg& x, int axis) {
  CallSite here(x.where, def.name);
  Tensor value = float_input(x, def.name);
  int64_t at = normalize_axis(axis, value.rank(), std::string(def.name).c_str());
  return make_node(def, {value}, {{"axis", at}});
}

// ---- normalization to mean 0 and variance 1, or to root mean square 1
const OpDef& normalize_def = define({
    .name = "normalize",
    .doc = "(x - mean) / sqrt(variance + eps) over attr axes",
    .infer = same_type,
    .gradient = [](const Tensor& y, const Tensor& dy) -> Gradients {
      ReduceOptions row = over(y->attrs.dims("axes"));
      Tensor x = widen(y->inputs[0]), upstream = widen(dy), normal = widen(y);
      Tensor centred = x - mean(x, row);
      Tensor inverse_deviation = rsqrt(mean(square(centred), row) + y->attrs.number("eps"));
      Tensor dx = inverse_deviation *
                  (upstream - mean(upstream, row) - normal * mean(upstream * normal, row));
      return {narrow_to(dx, y.dtype())};
    },
    .decompose =
        [](const Node& node) {
          return in_wide(node.inputs[0], [&](const Tensor& x) {
            ReduceOptions row = over(node.attrs.dims("axes"));
            Tensor centred = x - mean(x, row);
            return centred * rsqrt(mean(square(centred), row) + node.attrs.number("eps"));
          });
        },
});

const OpDef& rms_normalize_def = define({
    .name = "rms_normalize",
    .doc = "x / sqrt(mean(x^2) + eps) over attr axes",
    .infer = same_type,
    .gradient = [](const Tensor& y, const Tensor& dy) -> Gradients {
      ReduceOptions row = over(y->attrs.dims("axes"));
      Tensor x = widen(y->inputs[0]), upstream = widen(dy), normal = widen(y);
      Tensor inverse_rms = rsqrt(mean(square(x), row) + y->attrs.number("eps"));
      Tensor dx = inverse_rms * (upstream - normal * mean(upstream * normal, row));
      return {narrow_to(dx, y.dtype())};
    },
    .decompose =
        [](const Node& node) {
          return in_wide(node.inputs[0], [&](const Tensor& x) {
            ReduceOptions row = over(node.attrs.dims("axes"));
            return x * rsqrt(mean(square(x), row) + node.attrs.number("eps"));
          });
        },
});

// Where weight and bias have one element per normalized set, their gradients are sums that the
// gradient of x needs, too: dy and x are read once for all sums, and once more for dx.
struct BatchStatistics {
  Tensor centred, inverse_deviation;  // x - mean, 1 / sqrt(variance + eps)
  ReduceOptions batch;
  explicit BatchStatistics(const Node& node) : batch(over(node.attrs.dims("axes"))) {
    const Tensor x = widen(node.inputs[0]);
    centred = x - mean(x, batch);
    inverse_deviation = rsqrt(mean(square(centred), batch) + node.attrs.number("eps"));
  }
};

const OpDef& batch_normalize_def = define({
    .name = "batch_normalize",
    .arity = 3,
    .doc = "(x - mean) / sqrt(variance + eps) * weight + bias over attr axes, in which the latter "
           "have extent 1",
    .infer = same_type,
    .gradient = [](const Tensor& y, const Tensor& dy) -> Gradients {
      BatchStatistics at(*y.node());
      const int64_t count = y.elements() / y->inputs[1].elements();  // elements per statistic
      double share = 1 / static_cast<double>(count);
      Tensor upstream = widen(dy), weight = widen(y->inputs[1]);
      Tensor dbias = sum(upstream, at.batch);
      Tensor dweight = sum(upstream * at.centred, at.batch) * at.inverse_deviation;
      Tensor slope = dweight * at.inverse_deviation * share;
      Tensor dx = (weight * at.inverse_deviation) * (upstream - dbias * share - at.centred * slope);
      return {narrow_to(dx, y.dtype()), narrow_to(dweight, y->inputs[1].dtype()),
              narrow_to(dbias, y->inputs[2].dtype())};
    },
    .decompose =
        [](const Node& node) {
          BatchStatistics at(node);
          Tensor y =
              at.centred * (at.inverse_deviation * widen(node.inputs[1])) + widen(node.inputs[2]);
          return narrow_to(y, node.type.dtype);
        },
});

Tensor normalized(const OpDef& def, const Tensor& x, const Dims& axes, double eps) {
  return make_node(def, {x}, {{"axes", axes}, {"eps", eps}});
}

// Computes x * weight + bias, either of which may be missing, both reshaped to broadcast.
Tensor affine(Tensor x, const Tensor& weight, const Tensor& bias, const Shape& shape) {
  if (weight.defined()) x = x * reshape(widen(weight), shape);
  if (bias.defined()) x = x + reshape(widen(bias), shape);
  return x;
}

void check_vector(const Tensor& vector, int64_t extent, std::string_view op,
                  std::string_view what) {
  WEFT_CHECK(!vector.defined() || vector.shape() == Shape{extent},
             "[{}] the {} must have shape [{}]. Got {}.", op, what, extent,
             to_string(vector.shape()));
}

// Channels holds the axes of x[N, C, ...] except C, and the shape of one number per channel.
struct Channels {
  Dims axes;
  Shape shape;
  int64_t count;
  Channels(const Tensor& x, std::string_view op) {
    WEFT_CHECK(x.rank() >= 2, "[{}] needs x[N, C, ...]. Got {}.", op, to_string(x.shape()));
    count = x.dim(1);
    for (int i = 0; i < x.rank(); ++i) {
      if (i != 1) axes.push_back(i);
      shape.push_back(i == 1 ? count : 1);
    }
  }
};
}  // namespace

Tensor softmax(Arg x, int axis) { return along_axis(softmax_def, x, axis); }
Tensor log_softmax(Arg x, int axis) { return along_axis(log_softmax_def, x, axis); }

Tensor layer_norm(Arg x, const Tensor& weight, const Tensor& bias, double eps) {  // Ba et al. 2016
  CallSite here(x.where);
  Tensor value = float_input(x, "layer_norm");
  int64_t extent = value.dim(-1);
  check_vector(weight, extent, "layer_norm", "weight");
  check_vector(bias, extent, "layer_norm", "bias");
  return in_wide(value, [&](const Tensor& rows) {
    return affine(normalized(normalize_def, rows, {rows.rank() - 1}, eps), weight, bias, {extent});
  });
}

Tensor rms_norm(Arg x, const Tensor& weight, double eps) {  // Zhang and Sennrich 2019
  CallSite here(x.where);
  Tensor value = float_input(x, "rms_norm");
  int64_t extent = value.dim(-1);
  check_vector(weight, extent, "rms_norm", "weight");
  return in_wide(value, [&](const Tensor& rows) {
    return affine(normalized(rms_normalize_def, rows, {rows.rank() - 1}, eps), weight, {},
                  {extent});
  });
}

Tensor group_norm(Arg x, int64_t groups, const Tensor& weight, const Tensor& bias, double eps) {
  CallSite here(x.where);  // Wu and He 2018
  Tensor value = float_input(x, "group_norm");
  Channels channels(value, "group_norm");
  WEFT_CHECK(groups > 0 && channels.count % groups == 0,
             "[group_norm] groups must divide the channels. Got {} groups, {} channels.", groups,
             channels.count);
  check_vector(weight, channels.count, "group_norm", "weight");
  check_vector(bias, channels.count, "group_norm", "bias");
  int64_t each = channels.count / groups;
  int64_t pixels = 1;
  for (int i = 2; i < value.rank(); ++i) pixels *= value.shape()[i];
  Tensor grouped = reshape(value, {value.dim(0), groups, each, pixels});
  const Tensor y = in_wide(grouped, [&](const Tensor& sets) {
    return affine(normalized(normalize_def, sets, {2, 3}, eps), weight, bias, {groups, each, 1});
  });
  return reshape(y, value.shape());
}

BatchNorm batch_norm_train(Arg x, const Tensor& weight, const Tensor& bias, double eps) {
  CallSite here(x.where);  // Ioffe and Szegedy 2015
  Tensor value = float_input(x, "batch_norm");
  Channels channels(value, "batch_norm");
  check_vector(weight, channels.count, "batch_norm", "weight");
  check_vector(bias, channels.count, "batch_norm", "bias");
  Tensor wide = widen(value);
  ReduceOptions batch = over(channels.axes);
  // These are the nodes that the op decomposes into, so that they are computed once.
  Tensor batch_mean = mean(wide, batch);
  Tensor batch_variance = mean(square(wide - batch_mean), batch);
  auto per_channel = [&](const Tensor& given, double otherwise) {
    return given.defined() ? reshape(widen(given), channels.shape)
                           : full(channels.shape, otherwise, wide.dtype());
  };
  Tensor y = make_node(batch_normalize_def, {wide, per_channel(weight, 1), per_channel(bias, 0)},
                       {{"axes", channels.axes}, {"eps", eps}});
  Shape vector{channels.count};
  return {narrow_to(y, value.dtype()), reshape(batch_mean, vector),
          reshape(batch_variance, vector)};
}

Tensor batch_norm_eval(Arg x, const Tensor& mean, const Tensor& variance, const Tensor& weight,
                       const Tensor& bias, double eps) {
  CallSite here(x.where);
  Tensor value = float_input(x, "batch_norm");
  Channels channels(value, "batch_norm");
  check_vector(mean, channels.count, "batch_norm", "mean");
  check_vector(variance, channels.count, "batch_norm", "variance");
  check_vector(weight, channels.count, "batch_norm", "weight");
  check_vector(bias, channels.count, "batch_norm", "bias");
  Tensor scale = rsqrt(widen(variance) + eps);
  if (weight.defined()) scale = scale * widen(weight);
  Tensor centred = widen(value) - reshape(widen(mean), channels.shape);
  return narrow_to(affine(centred, scale, bias, channels.shape), value.dtype());
}
}  // namespace weft
