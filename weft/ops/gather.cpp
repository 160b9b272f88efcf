// Defines gather and scatter-add at indices that are values. An index outside [0, N) reads zero and
// adds nowhere, so that the two ops are each other's exact transpose whatever the indices.
#include "weft/ir/axis_map.h"
#include "weft/ops/apply.h"
#include "weft/ops/collective.h"

namespace weft {
namespace {
// Returns x's shape with axis `axis` replaced by the shape of the indices.
Shape gathered_shape(const Shape& x, const Shape& indices, int axis) {
  WEFT_CHECK(x.size() - 1 + indices.size() <= max_rank,
             "[gather] rank is at most {}. Got {} at indices {}.", max_rank, to_string(x),
             to_string(indices));
  Shape shape;
  for (int i = 0; i < axis; ++i) shape.push_back(x[i]);
  for (int64_t extent : indices) shape.push_back(extent);
  for (int i = axis + 1; i < x.size(); ++i) shape.push_back(x[i]);
  return shape;
}

void check_indices(const Tensor& indices, std::string_view op) {
  WEFT_CHECK(is_integer(indices.dtype()), "[{}] indices must be integers. Got {}. Hint: cast them.",
             op, name(indices.dtype()));
}

Type gather_type(std::span<const Tensor> inputs, const Attrs& attrs) {
  const Tensor &x = inputs[0], &indices = inputs[1];
  check_indices(indices, "gather");
  const int axis = axis_of(x.shape(), attrs.integer("axis"));
  return {x.dtype(), gathered_shape(x.shape(), indices.shape(), axis)};
}

// Returns the order of axes that moves the axes [first, first + count) to the front.
Dims to_front(int rank, int first, int count) {
  Dims order;
  for (int i = 0; i < count; ++i) order.push_back(first + i);
  for (int i = 0; i < rank; ++i)
    if (i < first || i >= first + count) order.push_back(i);
  return order;
}
Dims inverse(const Dims& order) {
  Dims result = order;
  for (int i = 0; i < order.size(); ++i) result[static_cast<int>(order[i])] = i;
  return result;
}

Gradients gather_gradient(const Tensor& y, const Tensor& dy) {
  const Tensor &x = y->inputs[0], &indices = y->inputs[1];
  int axis = static_cast<int>(y->attrs.integer("axis"));
  if (axis == 0) return {scatter_add(zeros(x.shape(), x.dtype()), indices, dy), {}};
  Dims order = to_front(x.rank(), axis, 1);
  Shape front;
  for (int64_t i : order) front.push_back(x.shape()[static_cast<int>(i)]);
  Tensor updates = permute(dy, to_front(dy.rank(), axis, indices.rank()));
  Tensor sums = scatter_add(zeros(front, x.dtype()), indices, updates);
  return {permute(sums, inverse(order)), {}};
}

const OpDef& gather_def = define({
    .name = "gather",
    .kind = OpKind::gather,
    .arity = 2,
    .doc = "x at integer indices along one axis, which the indices' shape replaces",
    .infer = gather_type,
    .gradient = gather_gradient,
    .flops = [](const Node&) { return 0.0; },
    .axes =
        [](const Node& node) {
          AxisMap map(node);
          const int axis = static_cast<int>(node.attrs.integer("axis"));
          const Shape &x = node.inputs[0].shape(), &indices = node.inputs[1].shape();
          constexpr int result = AxisMap::of_result;
          for (int i = 0; i < axis; ++i) map.relate(node, {.size = x[i]}, {{result, i}, {0, i}});
          map.relate(node, {.size = x[axis], .relation = Relation::whole}, {{0, axis}});
          for (int i = 0; i < indices.size(); ++i)
            map.relate(node, {.size = indices[i]}, {{result, axis + i}, {1, i}});
          for (int i = axis + 1; i < x.size(); ++i)
            map.relate(node, {.size = x[i]}, {{result, i - 1 + indices.size()}, {0, i}});
          return map;
        },
    .test = {.integers = true, .booleans = true},
});

// Which part of a value a rank reads is an operand, so that the plan of all ranks is one.
Type part_at_type(std::span<const Tensor> inputs, const Attrs& attrs) {
  WEFT_CHECK(inputs[1].type() == (Type{DType::i64, {}}),
             "[part_at] the part must be i64[]. Got {}.", to_string(inputs[1].type()));
  Type type = inputs[0].type();
  int64_t& extent = type.shape[axis_of(type.shape, attrs.integer("axis"))];
  const int64_t parts = attrs.integer("parts");
  WEFT_CHECK(parts > 0 && extent % parts == 0, "[part_at] {} parts of an axis of {}.", parts,
             extent);
  extent /= parts;
  return type;
}

const OpDef& part_at_def = define({
    .name = "part_at",
    .kind = OpKind::gather,
    .arity = 2,
    .doc = "the part of x that an i64 scalar names, of attr parts that attr axis is cut into; the "
           "nearest one for a number outside",
    .infer = part_at_type,
    .flops = [](const Node&) { return 0.0; },
    .axes =
        [](const Node& node) {
          AxisMap map(node);
          const int cut = static_cast<int>(node.attrs.integer("axis"));
          const Shape& x = node.inputs[0].shape();
          for (int axis = 0; axis < x.size(); ++axis) {
            const AxisMap::Place made{AxisMap::of_result, axis}, read{0, axis};
            if (axis != cut) {
              map.relate(node, {.size = x[axis]}, {made, read});
              continue;
            }
            map.relate(node, {.size = node.type.shape[axis], .relation = Relation::whole}, {made});
            map.relate(node, {.size = x[axis], .relation = Relation::whole}, {read});
          }
          return map;
        },
    .test = {.integers = true,
             .booleans = true,
             .no_gradient = "the pass that shards a step makes it, behind autodiff"},
});

Type scatter_add_type(std::span<const Tensor> inputs, const Attrs&) {
  const Tensor &into = inputs[0], &indices = inputs[1], &updates = inputs[2];
  check_indices(indices, "scatter_add");
  check_numeric(into.dtype(), "scatter_add");
  WEFT_CHECK(into.rank() >= 1, "[scatter_add] needs an axis to add along. Got a scalar.");
  WEFT_CHECK(updates.dtype() == into.dtype(), "[scatter_add] types differ. Got {} into {}.",
             name(updates.dtype()), name(into.dtype()));
  Shape expected = gathered_shape(into.shape(), indices.shape(), 0);
  WEFT_CHECK(updates.shape() == expected, "[scatter_add] updates must have shape {}. Got {}.",
             to_string(expected), to_string(updates.shape()));
  return into.type();
}

const OpDef& scatter_add_def = define({
    .name = "scatter_add",
    .kind = OpKind::gather,
    .arity = 3,
    .doc = "adds rows of updates to the rows of `into` that the indices name, in row-major order",
    .infer = scatter_add_type,
    .gradient = [](const Tensor& y, const Tensor& dy) -> Gradients {
      return {dy, {}, gather(dy, y->inputs[1], 0)};
    },
    .combine = ScalarOp::add,
    .flops = [](const Node& node) { return static_cast<double>(node.inputs[2].elements()); },
    // The first axis is positional, as indices count from the first row of the whole tensor.
    .axes =
        [](const Node& node) {
          AxisMap map(node);
          const Shape &y = node.type.shape, &indices = node.inputs[1].shape();
          constexpr int result = AxisMap::of_result;
          map.relate(node, {.size = y[0], .positional = true}, {{result, 0}, {0, 0}});
          for (int i = 0; i < indices.size(); ++i)
            map.relate(node, {.size = indices[i], .relation = Relation::reduced}, {{1, i}, {2, i}});
          for (int i = 1; i < y.size(); ++i)
            map.relate(node, {.size = y[i]}, {{result, i}, {0, i}, {2, i - 1 + indices.size()}});
          return map;
        },
    .test = {.integers = true},
});

Type first_position_type(std::span<const Tensor> inputs, const Attrs& attrs) {
  check_indices(inputs[0], "first_position");
  const int64_t rows = attrs.integer("rows");
  WEFT_CHECK(rows >= 0, "[first_position] rows must be at least 0. Got {}.", rows);
  return {DType::i64, {rows}};
}

const OpDef& first_position_def = define({
    .name = "first_position",
    .kind = OpKind::gather,
    .doc = "where in the indices, in row-major order, each row comes first, or -1",
    .infer = first_position_type,
    .flops = [](const Node&) { return 0.0; },
    .axes =
        [](const Node& node) {
          AxisMap map(node);
          map.relate(node, {.size = node.type.shape[0], .positional = true, .count = "rows"},
                     {{AxisMap::of_result, 0}});
          for (int i = 0; i < node.inputs[0].rank(); ++i)
            map.relate(node, {.size = node.inputs[0].shape()[i], .relation = Relation::whole},
                       {{0, i}});
          return map;
        },
    .test = {.floats = false,
             .integers = true,
             .differentiable = false,
             .no_gradient = "positions are integers"},
});

// Returns the row-major positions in x of the elements that the indices select along `axis`; -1 for
// indices outside of it.
Tensor positions(const Tensor& x, const Tensor& indices, int axis, std::string_view op) {
  check_indices(indices, op);
  const Shape &shape = x.shape(), &places = indices.shape();
  bool fits = shape.size() == places.size();
  for (int i = 0; fits && i < shape.size(); ++i) fits = i == axis || shape[i] == places[i];
  WEFT_CHECK(fits, "[{}] the indices must have the extents of x, but along axis {}. Got {} and {}.",
             op, axis, to_string(places), to_string(shape));
  const Tensor index = cast(indices, DType::i64);
  const Dims strides = row_major_strides(shape);
  Tensor position = index * strides[axis];
  for (int i = 0; i < shape.size(); ++i)
    if (i != axis && shape[i] > 1) position = position + iota(places, i) * strides[i];
  return select(logical_and(index >= 0, index < shape[axis]), position, -1);
}

// Returns one position along an axis, i64 [1].
Tensor one_integer(const Arg& arg, std::string_view op) {
  const Tensor value = to_value(arg, {});
  WEFT_CHECK(is_integer(value.dtype()) && value.elements() == 1,
             "[{}] start must be one integer. Got {}.", op, to_string(value.type()));
  return cast(reshape(value, {1}), DType::i64);
}

// Returns the start of update_at, i64: [1], or one for each row of x [x.dim(0)].
Tensor starts_of(const Arg& arg, const Tensor& x, int64_t axis) {
  const Tensor value = to_value(arg, {});
  if (value.elements() == 1) return one_integer(arg, "update_at");
  WEFT_CHECK(is_integer(value.dtype()) && value.shape() == (Shape{x.dim(0)}) && axis != 0,
             "[update_at] start must be one integer, or one for each row of axis 0 along another "
             "axis. Got {} for {} along axis {}.",
             to_string(value.type()), to_string(x.type()), axis);
  return cast(value, DType::i64);
}

// Broadcasts places [rows, count], which index `axis` in each row, to `shape`, which has `count`
// along that axis.
Tensor places_along(const Tensor& places, const Shape& shape, int axis) {
  Shape along = shape;
  for (int i = 1; i < along.size(); ++i) along[i] = i == axis ? shape[axis] : 1;
  return broadcast_to(reshape(places, along), shape);
}

// Returns slice_at(x, axis, start, size) with one start for each row of x.
Tensor slice_rows_at(const Tensor& x, int axis, const Tensor& start, int64_t size) {
  Shape shape = x.shape();
  shape[axis] = size;
  const Tensor places = unsqueeze(start, 1) + iota({x.dim(0), size}, 1);
  return take_along_axis(x, places_along(places, shape, axis), axis);
}

// A kernel that updates x in place writes only the updates.
const OpDef& update_at_def = define({
    .name = "update_at",
    .arity = 3,
    .doc = "x, with updates from position start on along attr axis",
    .infer = [](std::span<const Tensor> inputs, const Attrs& attrs) -> Type {
      const Tensor &x = inputs[0], &updates = inputs[2];
      const auto axis = static_cast<int>(attrs.integer("axis"));
      Shape fits = x.shape();
      if (updates.rank() == x.rank()) fits[axis] = updates.dim(axis);
      WEFT_CHECK(updates.type() == (Type{x.dtype(), fits}),
                 "[update_at] updates must be {}, of any extent along axis {}. Got {}.",
                 to_string(x.type()), axis, to_string(updates.type()));
      return x.type();
    },
    .gradient = [](const Tensor& y, const Tensor& dy) -> Gradients {
      const auto axis = static_cast<int>(y->attrs.integer("axis"));
      const Tensor &start = y->inputs[1], &updates = y->inputs[2];
      const int64_t size = updates.dim(axis);
      return {update_at(dy, axis, start, zeros_like(updates)),
              {},
              start.elements() == 1 ? slice_at(dy, axis, start, size)
                                    : slice_rows_at(dy, axis, start, size)};
    },
    .decompose = [](const Node& node) -> Tensor {
      const Tensor &x = node.inputs[0], &updates = node.inputs[2];
      const auto axis = static_cast<int>(node.attrs.integer("axis"));
      const Tensor& start = node.inputs[1];
      if (start.elements() > 1) {
        const Tensor places = iota({x.dim(0), x.dim(axis)}, 1) - unsqueeze(start, 1);
        const Tensor all = places_along(places, x.shape(), axis);
        const Tensor inside = logical_and(all >= 0, all < updates.dim(axis));
        return select(inside, take_along_axis(updates, all, axis), x);
      }
      const Tensor place = arange(x.dim(axis)) - start;
      Shape along = x.shape();
      for (int i = 0; i < along.size(); ++i) along[i] = i == axis ? x.dim(axis) : 1;
      const Tensor inside = logical_and(place >= 0, place < updates.dim(axis));
      return select(reshape(inside, along), gather(updates, place, axis), x);
    },
    .flops = [](const Node&) { return 0.0; },
    .test = {.integers = true, .booleans = true},
});
}  // namespace

Tensor gather(Arg x, Arg indices, int axis) {
  CallSite here(x.where);
  Tensor value = to_value(x, {});
  int64_t normal_axis = normalize_axis(axis, value.rank(), "gather");
  return make_node(gather_def, {value, to_value(indices, {})}, {{"axis", normal_axis}});
}
Tensor part_at(const Tensor& x, int axis, const Tensor& part, int64_t parts) {
  return make_node(part_at_def, {x, part}, {{"axis", int64_t{axis}}, {"parts", parts}});
}
Tensor scatter_add(Arg into, Arg indices, Arg updates) {
  CallSite here(into.where);
  Tensor target = to_value(into, {});
  return make_node(scatter_add_def, {target, to_value(indices, {}), to_value(updates, target)});
}
Tensor take_along_axis(Arg x, Arg indices, int axis) {
  CallSite here(x.where);
  const Tensor value = to_value(x, {});
  const int at = normalize_axis(axis, value.rank(), "take_along_axis");
  const Tensor from = positions(value, to_value(indices, {}), at, "take_along_axis");
  return gather(flatten(value), from, 0);
}
Tensor put_along_axis(Arg x, Arg indices, Arg values, int axis) {
  CallSite here(x.where);
  const Tensor value = to_value(x, {});
  const int at = normalize_axis(axis, value.rank(), "put_along_axis");
  const Tensor to = positions(value, to_value(indices, {}), at, "put_along_axis");
  return reshape(index_put(flatten(value), to, values), value.shape());
}
// Each row of the result takes the last of the updates whose index names it.
Tensor index_put(Arg into, Arg indices, Arg updates) {
  CallSite here(into.where);
  const Tensor target = to_value(into, {}), places = to_value(indices, {});
  check_indices(places, "index_put");
  WEFT_CHECK(target.rank() >= 1, "[index_put] needs an axis to put along. Got a scalar.");
  const Tensor rows = to_value(updates, target);
  WEFT_CHECK(rows.dtype() == target.dtype(), "[index_put] types differ. Got {} into {}.",
             name(rows.dtype()), name(target.dtype()));
  const Shape all = gathered_shape(target.shape(), places.shape(), 0);
  Shape one_each = target.shape(), list = target.shape();
  for (int i = 1; i < one_each.size(); ++i) one_each[i] = 1;
  const int64_t count = list[0] = places.elements();
  const Tensor from_last = first_position(flip(reshape(places, {count}), {0}), target.dim(0));
  const Tensor named = from_last >= 0, last = select(named, count - 1 - from_last, -1);
  const Tensor found = gather(reshape(broadcast_to(rows, all), list), last, 0);
  return select(reshape(named, one_each), found, target);
}
Tensor slice_at(Arg x, int axis, Arg start, int64_t size) {
  CallSite here(x.where);
  const Tensor from = one_integer(start, "slice_at");
  WEFT_CHECK(size >= 0, "[slice_at] size must be at least 0. Got {}.", size);
  return gather(x, from + arange(size), axis);
}
Tensor update_at(Arg x, int axis, Arg start, Arg updates) {
  CallSite here(x.where);
  const Tensor value = to_value(x, {}), rows = to_value(updates, value);
  const int64_t at = normalize_axis(axis, value.rank(), "update_at");
  return make_node(update_at_def, {value, starts_of(start, value, at), rows}, {{"axis", at}});
}
Tensor first_position(Arg indices, int64_t rows) {
  CallSite here(indices.where);
  return make_node(first_position_def, {to_value(indices, {})}, {{"rows", rows}});
}
Tensor embedding(Arg indices, Arg weight) {
  CallSite here(indices.where);
  WEFT_CHECK(weight.value.rank() == 2, "[embedding] the weight is [vocabulary, width]. Got {}.",
             to_string(weight.value.shape()));
  return gather(weight, indices, 0);
}
Tensor one_hot(Arg indices, int64_t classes, DType dtype) {
  CallSite here(indices.where);
  Tensor labels = to_value(indices, {});
  check_indices(labels, "one_hot");
  Shape shape = labels.shape();
  shape.push_back(classes);
  Tensor rows = cast(unsqueeze(labels, -1), DType::i64);
  return cast(broadcast_to(rows, shape) == iota(shape, -1), dtype);
}
}  // namespace weft
