// Defines the reductions. Nodes keep reduced axes with extent 1; the functions for users drop them
// by default.
#include <algorithm>
#include <cmath>
#include <limits>

#include "weft/ir/axis_map.h"
#include "weft/ops/apply.h"
#include "weft/ops/wide.h"

namespace weft {
namespace {
Type reduced_type(std::span<const Tensor> inputs, const Attrs& attrs) {
  Type type = inputs[0].type();
  for (int64_t axis : attrs.dims("axes")) type.shape[axis_of(type.shape, axis)] = 1;
  return type;
}
Type index_type(std::span<const Tensor> inputs, const Attrs& attrs) {
  Type type = reduced_type(inputs, attrs);
  type.dtype = DType::i64;
  return type;
}

// Relates kept axes one by one, and reduced ones by the factor `over`.
AxisMap reduced_axes(const Node& node, const Factor& over) {
  AxisMap map(node);
  for (int axis = 0; axis < node.type.shape.size(); ++axis) {
    Factor factor;
    if (node.attrs.dims("axes").contains(axis)) factor = over;
    factor.size = node.inputs[0].shape()[axis];
    map.relate(node, factor, {{AxisMap::of_result, axis}, {0, axis}});
  }
  return map;
}
// Shares the gradient among equal extremes, so that it sums to dy.
Gradients extreme_gradient(const Tensor& y, const Tensor& dy) {
  const Tensor& x = y->inputs[0];
  Tensor hit = cast(x == broadcast_to(y, x.shape()), accumulator(x.dtype()));
  Tensor share = widen(dy) / sum(hit, {.axes = y->attrs.dims("axes"), .keepdim = true});
  return {narrow_to(hit * share, x.dtype())};
}

const OpDef& sum_def = define({
    .name = "sum",
    .kind = OpKind::reduce,
    .infer = reduced_type,
    .gradient = [](const Tensor& y, const Tensor& dy) -> Gradients {
      return {broadcast_to(dy, y->inputs[0].shape())};
    },
    .combine = ScalarOp::add,
    .axes = [](const Node& node) { return reduced_axes(node, {.relation = Relation::reduced}); },
    .test = {.integers = true},
});

// The gradient prod / x would divide by zero. Where a row has one zero, the zero's gradient is the
// product of the other elements. Where it has two, each zero's gradient is that product times the
// other zero: it is 0, but its own gradient is not.
const OpDef& prod_def = define({
    .name = "prod",
    .kind = OpKind::reduce,
    .infer = reduced_type,
    .gradient = [](const Tensor& y, const Tensor& dy) -> Gradients {
      const Tensor x = widen(y->inputs[0]);
      const Dims& axes = y->attrs.dims("axes");
      ReduceOptions kept{.axes = axes, .keepdim = true};
      Tensor is_zero = x == 0.0;
      Tensor zero_count = sum(cast(is_zero, x.dtype()), kept);
      Tensor others = prod(select(is_zero, 1.0, x), kept);  // product of the non-zero elements
      Tensor other_zero = sum(select(is_zero, x, 0.0), kept) - x;
      Tensor at_zero =
          select(zero_count == 1.0, others, select(zero_count == 2.0, others * other_zero, 0.0));
      Tensor rest = select(is_zero, at_zero, prod(x, kept) / select(is_zero, 1.0, x));
      return {narrow_to(widen(dy) * rest, y.dtype())};
    },
    .combine = ScalarOp::mul,
    .axes =
        [](const Node& node) {
          return reduced_axes(node, {.relation = Relation::reduced, .combine = "mul"});
        },
    .test = {.low = 0.5, .high = 1.5, .integers = true},
});

const OpDef& max_def = define({
    .name = "max",
    .kind = OpKind::reduce,
    .infer = reduced_type,
    .gradient = extreme_gradient,
    .combine = ScalarOp::maximum,
    .axes =
        [](const Node& node) {
          return reduced_axes(node, {.relation = Relation::reduced, .combine = "maximum"});
        },
    .test = {.integers = true, .booleans = true},
});

const OpDef& min_def = define({
    .name = "min",
    .kind = OpKind::reduce,
    .infer = reduced_type,
    .gradient = extreme_gradient,
    .combine = ScalarOp::minimum,
    .axes =
        [](const Node& node) {
          return reduced_axes(node, {.relation = Relation::reduced, .combine = "minimum"});
        },
    .test = {.integers = true, .booleans = true},
});

const OpDef& argmax_def = define({
    .name = "argmax",
    .kind = OpKind::reduce,
    .doc = "index of the first of the greatest elements",
    .infer = index_type,
    .index_of = ScalarOp::maximum,
    .axes = [](const Node& node) { return reduced_axes(node, {.relation = Relation::whole}); },
    .test = {.integers = true, .no_gradient = "yields indices"},
});

const OpDef& argmin_def = define({
    .name = "argmin",
    .kind = OpKind::reduce,
    .doc = "index of the first of the least elements",
    .infer = index_type,
    .index_of = ScalarOp::minimum,
    .axes = [](const Node& node) { return reduced_axes(node, {.relation = Relation::whole}); },
    .test = {.integers = true, .no_gradient = "yields indices"},
});

Tensor drop(const Tensor& kept, const Dims& axes, bool keepdim) {
  if (keepdim || axes.empty()) return kept;
  Shape shape;
  for (int i = 0; i < kept.rank(); ++i)
    if (!axes.contains(i)) shape.push_back(kept.shape()[i]);
  return reshape(kept, shape);
}

// Returns whether a reduced axis has extent 0.
bool is_empty(const Tensor& x, const Dims& axes) {
  return std::any_of(axes.begin(), axes.end(),
                     [&](int64_t axis) { return x.shape()[static_cast<int>(axis)] == 0; });
}

Tensor reduce(const OpDef& def, const Arg& x, const ReduceOptions& options) {
  CallSite here(x.where, def.name);
  Dims axes = reduce_axes(options.axes, x.value.rank(), def.name);
  if (axes.empty()) return x.value;
  bool needs_elements = def.name != "sum" && def.name != "prod";
  for (int64_t axis : axes)
    WEFT_CHECK(!needs_elements || x.value.shape()[static_cast<int>(axis)] > 0,
               "[{}] axis {} is empty. Got shape {}.", def.name, axis, to_string(x.value.shape()));
  return drop(make_node(def, {x.value}, {{"axes", axes}}), axes, options.keepdim);
}

Tensor index_reduce(const OpDef& def, const Arg& x, std::optional<int> axis, bool keepdim) {
  CallSite here(x.where, def.name);
  if (!axis) {
    const Tensor index = reduce(def, {reshape(x, {-1}), x.where}, {.axes = {0}, .keepdim = false});
    return keepdim ? reshape(index, Dims::filled(x.value.rank(), 1)) : index;
  }
  const int at = normalize_axis(*axis, x.value.rank(), std::string(def.name).c_str());
  return reduce(def, x, {.axes = {at}, .keepdim = keepdim});
}

// Casts integers and bool to i64, in which they are summed and multiplied: narrow types would soon
// wrap.
Tensor counted(const Arg& x) {
  bool narrow = x.value.defined() && !is_float(x.value.dtype()) && x.value.dtype() != DType::i64;
  return narrow ? cast(x, DType::i64) : x.value;
}
// Computes any() or all() as the max or min of bool; over no elements the result is `of_none`.
Tensor truth(const OpDef& extreme, const Arg& x, const ReduceOptions& options, bool of_none) {
  Tensor holds = cast(x, DType::boolean);
  Dims axes = reduce_axes(options.axes, holds.rank(), extreme.name);
  if (!is_empty(holds, axes)) return reduce(extreme, {holds, x.where}, options);
  Type kept = reduced_type({&holds, 1}, {{"axes", axes}});
  return drop(full(kept.shape, of_none ? 1 : 0, kept.dtype), axes, options.keepdim);
}
Tensor real(const Arg& x) { return is_float(x.value.dtype()) ? x.value : cast(x, DType::f32); }

double reduced_count(const Tensor& x, const Dims& axes) {
  double count = 1;
  for (int64_t axis : axes) count *= static_cast<double>(x.shape()[static_cast<int>(axis)]);
  return count;
}

// Computes x^exponent for x >= 0. At 0, where the derivative may be infinite, value and gradient
// are 0.
Tensor power(const Tensor& x, double exponent) {
  Tensor is_zero = x == 0.0;
  Tensor positive = select(is_zero, 1.0, x);
  return select(is_zero, 0.0, exponent == 0.5 ? sqrt(positive) : pow(positive, exponent));
}

// Shifts x by `by` elements along the axis, with zeros in front.
Tensor shifted(const Tensor& x, int axis, int64_t by) {
  Dims low = Dims::filled(x.rank(), 0), high = low;
  low[axis] = by;
  return pad(slice(x, axis, 0, x.shape()[axis] - by), low, high);
}
}  // namespace

Tensor sum(Arg x, ReduceOptions options) {
  CallSite here(x.where);
  return reduce(sum_def, counted(x), options);
}
Tensor prod(Arg x, ReduceOptions options) {
  CallSite here(x.where);
  return reduce(prod_def, counted(x), options);
}
Tensor max(Arg x, ReduceOptions options) { return reduce(max_def, x, options); }
Tensor min(Arg x, ReduceOptions options) { return reduce(min_def, x, options); }
Tensor any(Arg x, ReduceOptions options) {
  CallSite here(x.where);
  return truth(max_def, x, options, false);
}
Tensor all(Arg x, ReduceOptions options) {
  CallSite here(x.where);
  return truth(min_def, x, options, true);
}
Tensor argmax(Arg x, std::optional<int> axis, bool keepdim) {
  return index_reduce(argmax_def, x, axis, keepdim);
}
Tensor argmin(Arg x, std::optional<int> axis, bool keepdim) {
  return index_reduce(argmin_def, x, axis, keepdim);
}

// Mean, variance and logsumexp of integers and bool compute in float32.
Tensor mean(Arg x, ReduceOptions options) {
  CallSite here(x.where);
  Tensor value = real(x);
  Dims axes = reduce_axes(options.axes, value.rank(), "mean");
  return in_wide(value, [&](const Tensor& terms) {
    return sum(terms, options) * (1 / reduced_count(terms, axes));
  });
}

Tensor variance(Arg x, ReduceOptions options, double correction) {
  CallSite here(x.where);
  Tensor value = real(x);
  Dims axes = reduce_axes(options.axes, value.rank(), "variance");
  double count = reduced_count(value, axes);
  WEFT_CHECK(count > correction,
             "[variance] needs more elements than its correction, {}. Got shape {}.", correction,
             to_string(x.value.shape()));
  return in_wide(value, [&](const Tensor& terms) {
    Tensor centred = terms - mean(terms, {.axes = axes, .keepdim = true});
    // Each difference contains the rounding error of the mean, and so does their sum, which is zero
    // otherwise (Chan, Golub and LeVeque 1983).
    Tensor rest = stop_gradient(square(sum(centred, options)) * (1 / count));
    return maximum(sum(centred * centred, options) - rest, 0) * (1 / (count - correction));
  });
}

Tensor stddev(Arg x, ReduceOptions options, double correction) {
  CallSite here(x.where);
  return in_wide(real(x), [&](const Tensor& terms) {
    return power(variance(terms, options, correction), 0.5);
  });
}

Tensor norm(Arg x, ReduceOptions options, double order) {
  CallSite here(x.where);
  WEFT_CHECK(order >= 0 || order == -INFINITY,
             "[norm] the order must be at least 0, or -infinity. Got {}.", order);
  return in_wide(real(x), [&](const Tensor& terms) {
    const Tensor size = abs(terms);
    if (order == 0) return sum(cast(size != 0, size.dtype()), options);
    if (order == 1) return sum(size, options);
    if (order == 2) return power(sum(size * size, options), 0.5);
    if (order == INFINITY) return max(size, options);
    if (order == -INFINITY) return min(size, options);
    return power(sum(power(size, order), options), 1 / order);
  });
}

// Each pass adds three earlier elements and quadruples the reach, after Hillis and Steele 1986, so
// log4(extent) kernels read x.
Tensor cumsum(Arg x, int axis) {
  CallSite here(x.where);
  const Tensor value = counted(x);
  const int at = normalize_axis(axis, value.rank(), "cumsum");
  const int64_t extent = value.shape()[at];
  return in_wide(value, [&](Tensor sums) {
    for (int64_t reach = 1; reach < extent; reach *= 4) {
      Tensor total = sums;
      for (int64_t by = reach; by < std::min(extent, 4 * reach); by += reach)
        total = total + shifted(sums, at, by);
      sums = total;
    }
    return sums;
  });
}

Tensor logsumexp(Arg x, ReduceOptions options) {
  CallSite here(x.where);
  Tensor value = real(x);
  Dims axes = reduce_axes(options.axes, value.rank(), "logsumexp");
  ReduceOptions kept{.axes = axes, .keepdim = true};
  const Tensor result = in_wide(value, [&](const Tensor& terms) {
    if (terms.elements() == 0) return log(sum(terms, kept));  // -inf
    Tensor peak = stop_gradient(max(terms, kept));
    // A row of -inf has no finite peak to subtract.
    Tensor shift = select(is_finite(peak), peak, 0.0);
    return log(sum(exp(terms - shift), kept)) + shift;
  });
  return drop(result, axes, options.keepdim);
}
}  // namespace weft
