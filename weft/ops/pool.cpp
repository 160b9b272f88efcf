// Defines pooling over windows of images.
#include <algorithm>
#include <limits>

#include "weft/base/numbers/rounding.h"
#include "weft/ir/axis_map.h"
#include "weft/ops/apply.h"
#include "weft/ops/wide.h"

namespace weft {
namespace {
int64_t out_extent(int64_t in, const Attrs& attrs, int spatial) {
  int64_t room = in + 2 * attrs.dims("padding")[spatial] - attrs.dims("kernel")[spatial];
  WEFT_CHECK(room >= 0, "[pool] the window of {} exceeds the padded input of {}.",
             attrs.dims("kernel")[spatial], in + 2 * attrs.dims("padding")[spatial]);
  return room / attrs.dims("stride")[spatial] + 1;
}
Shape pooled_shape(const Type& type, const Attrs& attrs) {
  const Shape& x = type.shape;
  WEFT_CHECK(is_float(type.dtype), "[pool] needs a floating point tensor. Got {}.",
             to_string(type));
  WEFT_CHECK(x.size() == 4, "[pool] needs x[N, C, H, W]. Got {}.", to_string(x));
  return {x[0], x[1], out_extent(x[2], attrs, 0), out_extent(x[3], attrs, 1)};
}
Type pool_type(std::span<const Tensor> inputs, const Attrs& attrs) {
  return {inputs[0].dtype(), pooled_shape(inputs[0].type(), attrs)};
}

// Relates batch and channel axes one by one, and spatial axes by `window_of`: the window of an
// operand that one element of the result reads.
using WindowOf = Window (*)(int operand, int64_t kernel, int64_t stride, int64_t padding);
AxisMap pool_axes(const Node& node, WindowOf window_of, std::string_view shape = {}) {
  AxisMap map(node);
  map.shape = shape;
  for (int axis = 0; axis < node.type.shape.size(); ++axis) {
    const bool spatial = axis >= 2;
    std::vector<AxisMap::Place> places{{AxisMap::of_result, axis}};
    for (int i = 0; i < static_cast<int>(node.inputs.size()); ++i) {
      places.push_back({i, axis});
      if (spatial)
        places.back().window =
            window_of(i, node.attrs.dims("kernel")[axis - 2], node.attrs.dims("stride")[axis - 2],
                      node.attrs.dims("padding")[axis - 2]);
    }
    map.relate(
        node,
        {.size = node.type.shape[axis], .relation = spatial ? Relation::affine : Relation::plain},
        places);
  }
  return map;
}
Window pooled_from(int, int64_t kernel, int64_t stride, int64_t padding) {
  return {.scale = stride, .low = -padding, .high = kernel - 1 - padding};
}
// Returns the window of gradients whose pooling windows contain an element.
Window windows_around(int, int64_t kernel, int64_t stride, int64_t padding) {
  return {.low = padding - kernel + 1, .high = padding, .divisor = stride};
}

// Counts one operation per element of each window.
double window_flops(const Shape& pooled, const Node& node) {
  return static_cast<double>(element_count(pooled) * element_count(node.attrs.dims("kernel")));
}

// Returns `z` at the first maximum of each window of x: the transpose of max_pool_gradient.
Tensor at_maxima(const Tensor& x, const Tensor& z, const Attrs& attrs) {
  const Dims &kernel = attrs.dims("kernel"), &stride = attrs.dims("stride");
  const Dims& padding = attrs.dims("padding");
  Shape pooled = pooled_shape(x.type(), attrs);
  Dims margin{0, 0, padding[0], padding[1]};
  Tensor padded_x = pad(x, margin, margin, -std::numeric_limits<double>::infinity());
  Tensor padded_z = pad(z, margin, margin);
  auto tap = [&](const Tensor& image, int64_t row, int64_t column) {
    Tensor rows = slice(image, 2, row, row + (pooled[2] - 1) * stride[0] + 1, stride[0]);
    return slice(rows, 3, column, column + (pooled[3] - 1) * stride[1] + 1, stride[1]);
  };
  Tensor maximum = make_node(op("max_pool"), {x}, attrs);
  Tensor total = zeros(pooled, x.dtype()), searching = full(pooled, 1, DType::boolean);
  for (int64_t row = 0; row < kernel[0]; ++row)
    for (int64_t column = 0; column < kernel[1]; ++column) {
      Tensor hit = logical_and(searching, tap(padded_x, row, column) == maximum);
      total = select(hit, tap(padded_z, row, column), total);
      searching = logical_and(searching, logical_not(hit));
    }
  return total;
}

const OpDef& max_pool_gradient_def = define({
    .name = "max_pool_gradient",
    .kind = OpKind::window,
    .arity = 2,
    .doc = "adds each gradient to the first maximum of its window in x, row by row",
    .infer = [](std::span<const Tensor> inputs, const Attrs& attrs) -> Type {
      Shape pooled = pooled_shape(inputs[0].type(), attrs);
      WEFT_CHECK(inputs[1].type() == (Type{inputs[0].dtype(), pooled}),
                 "[max_pool] the gradient must have shape {}. Got {}.", to_string(pooled),
                 to_string(inputs[1].type()));
      return inputs[0].type();
    },
    .gradient = [](const Tensor& y, const Tensor& dy) -> Gradients {
      return {{}, at_maxima(y->inputs[0], dy, y->attrs)};
    },
    .family = OpFamily::pooling,
    .role = Role::input_gradient,
    .combine = ScalarOp::maximum,
    .flops = [](const Node& node) { return window_flops(node.inputs[1].shape(), node); },
    .axes =
        [](const Node& node) {
          return pool_axes(node, [](int i, int64_t kernel, int64_t stride, int64_t padding) {
            if (i == 1) return windows_around(i, kernel, stride, padding);
            return Window{.low = 1 - kernel,
                          .high = kernel - 1};  // elements that may share a window with it
          });
        },
    .narrows = true,
});

const OpDef& max_pool_def = define({
    .name = "max_pool",
    .kind = OpKind::window,
    .doc =
        "the greatest element of each window (attrs kernel, stride, padding); padding never wins",
    .infer = pool_type,
    .gradient = [](const Tensor& y, const Tensor& dy) -> Gradients {
      return {make_node(max_pool_gradient_def, {y->inputs[0], dy}, y->attrs)};
    },
    .family = OpFamily::pooling,
    .combine = ScalarOp::maximum,
    .flops = [](const Node& node) { return window_flops(node.type.shape, node); },
    .axes = [](const Node& node) { return pool_axes(node, pooled_from); },
    .narrows = true,
});

Tensor average(const Tensor& x, const Attrs& like);
Tensor average_gradient(const Tensor& dy, const Shape& input, const Attrs& like);

const OpDef& avg_pool_def = define({
    .name = "avg_pool",
    .kind = OpKind::window,
    .doc = "the mean of each window; padding counts as zeros where attr count_include_pad is 1",
    .infer = pool_type,
    .gradient = [](const Tensor& y, const Tensor& dy) -> Gradients {
      return {average_gradient(dy, y->inputs[0].shape(), y->attrs)};
    },
    .family = OpFamily::pooling,
    .combine = ScalarOp::add,
    .flops = [](const Node& node) { return window_flops(node.type.shape, node); },
    .axes = [](const Node& node) { return pool_axes(node, pooled_from); },
    .narrows = true,
});

const OpDef& avg_pool_gradient_def = define({
    .name = "avg_pool_gradient",
    .kind = OpKind::window,
    .doc = "spreads each gradient evenly over its window",
    .infer = [](std::span<const Tensor> inputs, const Attrs& attrs) -> Type {
      Shape pooled = pooled_shape({inputs[0].dtype(), attrs.dims("input_shape")}, attrs);
      WEFT_CHECK(inputs[0].shape() == pooled, "[avg_pool] the gradient must have shape {}. Got {}.",
                 to_string(pooled), to_string(inputs[0].shape()));
      return {inputs[0].dtype(), attrs.dims("input_shape")};
    },
    .gradient = [](const Tensor& y, const Tensor& dy) -> Gradients {
      return {average(dy, y->attrs)};
    },
    .family = OpFamily::pooling,
    .role = Role::input_gradient,
    .combine = ScalarOp::add,
    .flops = [](const Node& node) { return window_flops(node.inputs[0].shape(), node); },
    .axes = [](const Node& node) { return pool_axes(node, windows_around, "input_shape"); },
    .narrows = true,
});

Tensor average(const Tensor& x, const Attrs& like) {
  return make_node(avg_pool_def, {x},
                   {{"kernel", like.dims("kernel")},
                    {"stride", like.dims("stride")},
                    {"padding", like.dims("padding")},
                    {"count_include_pad", like.integer("count_include_pad")}});
}
Tensor average_gradient(const Tensor& dy, const Shape& input, const Attrs& like) {
  return make_node(avg_pool_gradient_def, {dy},
                   {{"kernel", like.dims("kernel")},
                    {"stride", like.dims("stride")},
                    {"padding", like.dims("padding")},
                    {"count_include_pad", like.integer("count_include_pad")},
                    {"input_shape", input}});
}

Dims per_axis(const Dims& given, const Dims& otherwise, int axes, int64_t least,
              std::string_view what) {
  Dims full = given.empty() ? otherwise : given.size() == 1 ? Dims::filled(axes, given[0]) : given;
  WEFT_CHECK(full.size() == axes && std::ranges::all_of(full, [&](auto n) { return n >= least; }),
             "[pool] {} needs {} numbers of at least {}. Got {}.", what,
             axes == 2 ? "two" : "three", least, to_string(given));
  return full;
}

struct Windows {
  Dims kernel, stride, padding;
  Windows(const PoolOptions& options, int axes)
      : kernel(per_axis(options.kernel, {}, axes, 1, "kernel")),
        stride(per_axis(options.stride, kernel, axes, 1, "stride")),
        padding(per_axis(options.padding, Dims::filled(axes, 0), axes, 0, "padding")) {
    for (int i = 0; i < axes; ++i)  // else a window could lie in the padding alone
      WEFT_CHECK(2 * padding[i] <= kernel[i],
                 "[pool] padding must be at most half the kernel. Got {} of {}.",
                 to_string(padding), to_string(kernel));
  }
};

// Pools x[N, C, D, H, W] by two applications of `pool`: to each slice [H, W], then along D to the
// results. The maximum and the mean of a box are those of the results of its slices, and the first
// maximum is in the first slice that has one.
template <class Pool>
Tensor pool_volumes(const Tensor& x, const Windows& windows, Pool pool) {
  const auto last = [](const Dims& of) { return Dims{of[1], of[2]}; };
  const Tensor slices = reshape(x, {x.dim(0), x.dim(1) * x.dim(2), x.dim(3), x.dim(4)});
  const Tensor flat = pool(slices, Attrs{{"kernel", last(windows.kernel)},
                                         {"stride", last(windows.stride)},
                                         {"padding", last(windows.padding)}});
  const Tensor columns = reshape(flat, {x.dim(0), x.dim(1), x.dim(2), flat.dim(2) * flat.dim(3)});
  const Tensor y = pool(columns, Attrs{{"kernel", Dims{windows.kernel[0], 1}},
                                       {"stride", Dims{windows.stride[0], 1}},
                                       {"padding", Dims{windows.padding[0], 0}}});
  return reshape(y, {x.dim(0), x.dim(1), y.dim(2), flat.dim(2), flat.dim(3)});
}

template <class Pool>
Tensor pool_windows(const Tensor& x, const PoolOptions& options, Pool pool) {
  WEFT_CHECK(x.rank() == 4 || x.rank() == 5,
             "[pool] needs x[N, C, H, W] or x[N, C, D, H, W]. Got {}.", to_string(x.shape()));
  const Windows windows(options, x.rank() - 2);
  if (x.rank() == 5) return pool_volumes(x, windows, pool);
  return pool(
      x,
      Attrs{{"kernel", windows.kernel}, {"stride", windows.stride}, {"padding", windows.padding}});
}
}  // namespace

Tensor max_pool(Arg x, const PoolOptions& options) {
  CallSite here(x.where);
  return pool_windows(float_input(x, "max_pool"), options,
                      [](const Tensor& images, const Attrs& attrs) {
                        return make_node(max_pool_def, {images}, attrs);
                      });
}
Tensor avg_pool(Arg x, const PoolOptions& options) {
  CallSite here(x.where);
  const Tensor input = float_input(x, "avg_pool");
  auto pool = [&](const Tensor& images, const Attrs& attrs) {
    return make_node(avg_pool_def, {images},
                     attrs.with({"count_include_pad", int64_t{options.count_include_pad}}));
  };
  if (input.rank() != 5) return pool_windows(input, options, pool);
  return in_wide(input, [&](const Tensor& wide) { return pool_windows(wide, options, pool); });
}
Tensor global_avg_pool(Arg x) {
  CallSite here(x.where);
  WEFT_CHECK(x.value.rank() == 4, "[global_avg_pool] needs x[N, C, H, W]. Got {}.",
             to_string(x.value.shape()));
  return mean(float_input(x, "global_avg_pool"), {.axes = {2, 3}, .keepdim = true});
}

Tensor adaptive_avg_pool(Arg x, const Dims& size) {
  CallSite here(x.where);
  WEFT_CHECK(x.value.rank() == 4 && size.size() == 2 && size[0] > 0 && size[1] > 0,
             "[adaptive_avg_pool] needs x[N, C, H, W] and two sizes above 0. Got {} and {}.",
             to_string(x.value.shape()), to_string(size));
  return in_wide(float_input(x, "adaptive_avg_pool"), [&](Tensor y) {
    for (int axis = 2; axis < 4; ++axis) {
      int64_t extent = y.dim(axis), cells = size[axis - 2];
      if (extent == cells) continue;
      std::vector<Tensor> means;
      for (int64_t i = 0; i < cells; ++i) {
        int64_t first = i * extent / cells, last = ceil_div((i + 1) * extent, cells);
        means.push_back(mean(slice(y, axis, first, last), {.axes = {axis}, .keepdim = true}));
      }
      y = concat(means, axis);
    }
    return y;
  });
}
}  // namespace weft
