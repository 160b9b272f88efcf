// Movement rearranges elements without arithmetic; most of it becomes strides over the same bytes.
// This is one file because most of these operations are each other's gradients.
#include <algorithm>
#include <functional>
#include <numeric>

#include <fmt/format.h>

#include "weft/base/numbers/rounding.h"
#include "weft/ir/axis_map.h"
#include "weft/ir/plan.h"
#include "weft/ops/apply.h"

namespace weft {
namespace {
// Relates two shapes that hold the elements in one order: axes that cover the same elements share
// factors, [ij] -> [i, j]. Where extents do not divide each other, all axes are whole.
AxisMap reshape_axes(const Node& node) {
  AxisMap map(node);
  map.shape = "shape";
  const Shape &from = node.inputs[0].shape(), &to = node.type.shape;
  int in = 0, out = 0;
  int64_t left_in = 1, left_out = 1;  // extents of axes in - 1 and out - 1 not yet related
  while (node.type.elements() > 0) {
    while (left_in == 1 && in < from.size()) left_in = from[in++];
    while (left_out == 1 && out < to.size()) left_out = to[out++];
    if (left_in == 1 || left_out == 1) return map;
    const int64_t size = std::min(left_in, left_out);
    if (left_in % size != 0 || left_out % size != 0) break;
    map.relate(node, {.size = size}, {{AxisMap::of_result, out - 1}, {0, in - 1}});
    left_in /= size;
    left_out /= size;
  }
  AxisMap whole(node);
  for (int axis = 0; axis < to.size(); ++axis)
    whole.relate(node, {.size = to[axis], .relation = Relation::whole},
                 {{AxisMap::of_result, axis}});
  for (int axis = 0; axis < from.size(); ++axis)
    whole.relate(node, {.size = from[axis], .relation = Relation::whole}, {{0, axis}});
  return whole;
}

// Returns the strides of a reshape without a copy, or nullopt, by NumPy's rule: axes merge where
// outer stride = extent * inner stride.
std::optional<Dims> reshaped_strides(const Shape& from, const Dims& strides, const Shape& to) {
  Dims result = Dims::filled(to.size(), 0);
  if (element_count(from) == 0) return row_major_strides(to);
  std::vector<std::pair<int64_t, int64_t>> axes;  // extent, stride of the input without unit axes
  for (int i = 0; i < from.size(); ++i)
    if (from[i] != 1) axes.emplace_back(from[i], strides[i]);
  size_t in = 0;
  for (int out = 0; out < to.size();) {
    if (to[out] == 1) {
      result[out++] = 0;
      continue;
    }
    // Finds the shortest runs of input axes and of output axes with equal element counts.
    size_t in_end = in + 1;
    int out_end = out + 1;
    int64_t have = axes[in].first, want = to[out];
    while (have != want) {
      if (have < want)
        have *= axes[in_end++].first;
      else
        want *= to[out_end++];
    }
    for (size_t i = in; i + 1 < in_end; ++i)
      if (axes[i].second != axes[i + 1].first * axes[i + 1].second) return std::nullopt;
    int64_t stride = axes[in_end - 1].second;
    for (int i = out_end - 1; i >= out; --i) {
      result[i] = to[i] == 1 ? 0 : stride;
      stride *= to[i];
    }
    in = in_end;
    out = out_end;
  }
  return result;
}

const OpDef& reshape_def = define({
    .name = "reshape",
    .kind = OpKind::movement,
    .infer = [](std::span<const Tensor> inputs, const Attrs& attrs) -> Type {
      const Type type{inputs[0].dtype(), attrs.dims("shape")};
      WEFT_ASSERT(type.bytes() == inputs[0].type().bytes(), "{} as {}", to_string(inputs[0].type()),
                  to_string(type));
      return type;
    },
    .gradient = [](const Tensor& y, const Tensor& dy) -> Gradients {
      return {reshape(dy, y->inputs[0].shape())};
    },
    .view = [](const Node& node, const Placement& input) -> std::optional<Placement> {
      auto strides = reshaped_strides(node.inputs[0].shape(), input.strides, node.type.shape);
      if (!strides) return std::nullopt;
      return Placement{input.slot, input.offset, *strides};
    },
    .preserves_order = true,
    .axes = reshape_axes,
    .test = {.integers = true, .booleans = true},
});

// Relates axes one by one. Along an axis for which `moves` is true, element i of the result reads
// the window `window_of` of each operand.
AxisMap with_window(const Node& node, const std::function<Window(int operand, int axis)>& window_of,
                    const std::function<bool(int axis)>& moves) {
  AxisMap map(node);
  for (int axis = 0; axis < node.type.shape.size(); ++axis) {
    const bool affine = moves(axis);
    std::vector<AxisMap::Place> places{{AxisMap::of_result, axis}};
    for (int i = 0; i < static_cast<int>(node.inputs.size()); ++i)
      places.push_back({i, axis, affine ? window_of(i, axis) : Window{}});
    map.relate(
        node,
        {.size = node.type.shape[axis], .relation = affine ? Relation::affine : Relation::plain},
        places);
  }
  return map;
}
Window shifted(int64_t offset) { return {.low = offset, .high = offset}; }

const OpDef& permute_def = define({
    .name = "permute",
    .kind = OpKind::movement,
    .infer = [](std::span<const Tensor> inputs, const Attrs& attrs) -> Type {
      const Shape& from = inputs[0].shape();
      Shape shape;
      unsigned seen = 0;  // a bit for each axis
      for (int64_t axis : attrs.dims("order")) {
        shape.push_back(from[axis_of(from, axis)]);
        seen |= 1U << axis;
      }
      WEFT_ASSERT(shape.size() == from.size() && seen + 1 == 1U << from.size(),
                  "an order that does not name every axis once");
      return {inputs[0].dtype(), shape};
    },
    .gradient = [](const Tensor& y, const Tensor& dy) -> Gradients {
      const Dims& order = y->attrs.dims("order");
      Dims inverse = Dims::filled(order.size(), 0);
      for (int i = 0; i < order.size(); ++i) inverse[static_cast<int>(order[i])] = i;
      return {permute(dy, inverse)};
    },
    .view = [](const Node& node, const Placement& input) -> std::optional<Placement> {
      Placement at = input;
      const Dims& order = node.attrs.dims("order");
      for (int i = 0; i < order.size(); ++i)
        at.strides[i] = input.strides[static_cast<int>(order[i])];
      return at;
    },
    .axes =
        [](const Node& node) {
          AxisMap map(node);
          for (int axis = 0; axis < node.type.shape.size(); ++axis)
            map.relate(node, {.size = node.type.shape[axis]},
                       {{AxisMap::of_result, axis},
                        {0, static_cast<int>(node.attrs.dims("order")[axis])}});
          return map;
        },
    .test = {.integers = true, .booleans = true},
});

const OpDef& broadcast_def = define({
    .name = "broadcast",
    .kind = OpKind::movement,
    .doc = "axes of extent 1 repeated; equal rank",
    .infer = [](std::span<const Tensor> inputs, const Attrs& attrs) -> Type {
      const Shape &from = inputs[0].shape(), &to = attrs.dims("shape");
      (void)element_count(to);  // an extent below 0 is the caller's mistake, and refused as such
      bool repeats = from.size() == to.size();
      for (int i = 0; repeats && i < to.size(); ++i) repeats = from[i] == to[i] || from[i] == 1;
      WEFT_ASSERT(repeats, "{} repeated to {}", to_string(from), to_string(to));
      return {inputs[0].dtype(), to};
    },
    .gradient = [](const Tensor& y, const Tensor& dy) -> Gradients {
      return {sum_to(dy, y->inputs[0].shape())};
    },
    .view = [](const Node& node, const Placement& input) -> std::optional<Placement> {
      Placement at = input;
      const Shape& shape = node.inputs[0].shape();
      for (int i = 0; i < shape.size(); ++i)
        if (shape[i] != node.type.shape[i]) at.strides[i] = 0;
      return at;
    },
    .axes =
        [](const Node& node) {
          AxisMap map = axis_by_axis(node, [](const Node& each, int axis) {
            return Factor{.size = each.type.shape[axis]};
          });
          map.shape = "shape";
          return map;
        },
    .test = {.integers = true, .booleans = true},
});

const OpDef& slice_def = define({
    .name = "slice",
    .kind = OpKind::movement,
    .doc = "elements start, start + step, ... below stop of attr axis",
    .infer = [](std::span<const Tensor> inputs, const Attrs& attrs) -> Type {
      Shape shape = inputs[0].shape();
      const int64_t start = attrs.integer("start"), stop = attrs.integer("stop"),
                    step = attrs.integer("step");
      int64_t& extent = shape[axis_of(shape, attrs.integer("axis"))];
      WEFT_ASSERT(0 <= start && start <= stop && stop <= extent && step > 0,
                  "elements {} to {} of {} by {}", start, stop, extent, step);
      extent = ceil_div(stop - start, step);
      return {inputs[0].dtype(), shape};
    },
    .gradient = [](const Tensor& y, const Tensor& dy) -> Gradients {
      int axis = static_cast<int>(y->attrs.integer("axis"));
      const Shape& whole = y->inputs[0].shape();
      int64_t start = y->attrs.integer("start"), step = y->attrs.integer("step");
      Tensor spread = dy;
      if (step > 1) {  // inserts step - 1 zeros after each element:
                       // [.., n, ..] -> [.., n, step, ..] -> [.., n * step, ..]
        Shape split = Dims(), low = Dims(), high = Dims(), merged = dy.shape();
        for (int i = 0; i < dy.rank(); ++i) {
          split.push_back(dy.shape()[i]);
          if (i == axis) split.push_back(1);
        }
        low = Dims::filled(split.size(), 0);
        high = low;
        high[axis + 1] = step - 1;
        merged[axis] *= step;
        spread = reshape(pad(reshape(dy, split), low, high), merged);
        if (start + merged[axis] > whole[axis])
          spread = slice(spread, axis, 0, whole[axis] - start);
      }
      Dims low = Dims::filled(dy.rank(), 0), high = low;
      low[axis] = start;
      high[axis] = whole[axis] - start - spread.shape()[axis];
      return {pad(spread, low, high)};
    },
    .view = [](const Node& node, const Placement& input) -> std::optional<Placement> {
      Placement at = input;
      const auto axis = static_cast<int>(node.attrs.integer("axis"));
      at.offset += node.attrs.integer("start") * input.strides[axis];
      at.strides[axis] *= node.attrs.integer("step");
      return at;
    },
    .axes =
        [](const Node& node) {
          const int64_t start = node.attrs.integer("start"), step = node.attrs.integer("step");
          return with_window(
              node, [&](int, int) { return Window{.scale = step, .low = start, .high = start}; },
              [&](int axis) {
                return axis == node.attrs.integer("axis") &&
                       node.inputs[0].shape()[axis] != node.type.shape[axis];
              });
        },
    .test = {.integers = true, .booleans = true},
});

const OpDef& flip_def = define({
    .name = "flip",
    .kind = OpKind::movement,
    .infer = [](std::span<const Tensor> inputs, const Attrs& attrs) -> Type {
      for (int64_t axis : attrs.dims("axes")) (void)axis_of(inputs[0].shape(), axis);
      return inputs[0].type();
    },
    .gradient = [](const Tensor& y, const Tensor& dy) -> Gradients {
      return {flip(dy, y->attrs.dims("axes"))};
    },
    .view = [](const Node& node, const Placement& input) -> std::optional<Placement> {
      Placement at = input;
      for (int64_t flipped : node.attrs.dims("axes")) {
        const auto axis = static_cast<int>(flipped);
        at.offset += (node.type.shape[axis] - 1) * input.strides[axis];
        at.strides[axis] = -input.strides[axis];
      }
      return at;
    },
    .axes =
        [](const Node& node) {
          auto mirrored = [&](int, int axis) {
            const int64_t last = node.type.shape[axis] - 1;
            return Window{.scale = -1, .low = last, .high = last};
          };
          return with_window(node, mirrored,
                             [&](int axis) { return node.attrs.dims("axes").contains(axis); });
        },
    .test = {.integers = true, .booleans = true},
});

const OpDef& pad_def = define({
    .name = "pad",
    .kind = OpKind::movement,
    .infer = [](std::span<const Tensor> inputs, const Attrs& attrs) -> Type {
      Shape shape = inputs[0].shape();
      const Dims &low = attrs.dims("low"), &high = attrs.dims("high");
      WEFT_ASSERT(low.size() == shape.size() && high.size() == shape.size(),
                  "{} and {} elements around {}", low.size(), high.size(), to_string(shape));
      for (int i = 0; i < shape.size(); ++i) {
        const bool is_countable = low[i] >= 0 && high[i] >= 0 &&
                                  !__builtin_add_overflow(shape[i], low[i], &shape[i]) &&
                                  !__builtin_add_overflow(shape[i], high[i], &shape[i]);
        WEFT_ASSERT(is_countable, "{} and {} elements around an axis", low[i], high[i]);
      }
      return {inputs[0].dtype(), shape};
    },
    .gradient = [](const Tensor& y, const Tensor& dy) -> Gradients {
      Tensor dx = dy;
      const Dims& low = y->attrs.dims("low");
      for (int i = 0; i < dy.rank(); ++i)
        dx = slice(dx, i, low[i], low[i] + y->inputs[0].shape()[i]);
      return {dx};
    },
    .axes =
        [](const Node& node) {
          const Dims &low = node.attrs.dims("low"), &high = node.attrs.dims("high");
          return with_window(
              node, [&](int, int axis) { return shifted(-low[axis]); },
              [&](int axis) { return low[axis] != 0 || high[axis] != 0; });
        },
    .test = {.integers = true, .booleans = true},
});

const OpDef& concat_def = define({
    .name = "concat",
    .kind = OpKind::movement,
    .arity = -1,
    .infer = [](std::span<const Tensor> inputs, const Attrs& attrs) -> Type {
      WEFT_ASSERT(!inputs.empty(), "nothing is joined");
      Type type = inputs[0].type();
      const int axis = axis_of(type.shape, attrs.integer("axis"));
      for (const Tensor& input : inputs.subspan(1)) {
        Type same = input.type();
        if (same.shape.size() == type.shape.size()) same.shape[axis] = type.shape[axis];
        const bool fits =
            same == type &&
            !__builtin_add_overflow(type.shape[axis], input.shape()[axis], &type.shape[axis]);
        WEFT_ASSERT(fits, "{} joins {} along axis {}", to_string(input.type()), to_string(type),
                    axis);
      }
      return type;
    },
    .gradient = [](const Tensor& y, const Tensor& dy) -> Gradients {
      int axis = static_cast<int>(y->attrs.integer("axis"));
      Gradients parts;
      int64_t start = 0;
      for (const Tensor& input : y->inputs) {
        parts.push_back(slice(dy, axis, start, start + input.shape()[axis]));
        start += input.shape()[axis];
      }
      return parts;
    },
    .axes =
        [](const Node& node) {
          const int joined = static_cast<int>(node.attrs.integer("axis"));
          std::vector<int64_t> starts{0};
          for (const Tensor& input : node.inputs)
            starts.push_back(starts.back() + input.shape()[joined]);
          return with_window(
              node, [&](int i, int) { return shifted(-starts[static_cast<size_t>(i)]); },
              [&](int axis) { return axis == joined && node.inputs.size() > 1; });
        },
    .test = {.integers = true, .booleans = true},
});

// Applies a movement operation; moving a constant gives a constant.
Tensor move(const OpDef& def, const Tensor& x, const Attrs& attrs) {
  if (!x->is("scalar")) return make_node(def, {x}, attrs);
  return full(def.infer(std::span(&x, 1), attrs).shape, x->attrs.number("value"), x.dtype());
}
}  // namespace

Tensor reshape(Arg x, Shape shape) {
  CallSite here(x.where);
  const Shape& from = x.value.shape();
  int unknown = -1;
  int64_t known = 1;
  for (int i = 0; i < shape.size(); ++i) {
    if (shape[i] != -1) {
      known *= shape[i];
      continue;
    }
    WEFT_CHECK(unknown < 0, "[reshape] only one extent may be -1. Got {}.", to_string(shape));
    unknown = i;
  }
  if (unknown >= 0) {
    WEFT_CHECK(known > 0 && element_count(from) % known == 0,
               "[reshape] {} does not divide into {}.", to_string(from), to_string(shape));
    shape[unknown] = element_count(from) / known;
  }
  WEFT_CHECK(element_count(shape) == element_count(from),
             "[reshape] element counts differ. Got {} ({}) to {} ({}).", to_string(from),
             element_count(from), to_string(shape), element_count(shape));
  return shape == from ? x.value : move(reshape_def, x.value, {{"shape", shape}});
}

Tensor permute(Arg x, const Dims& order) {
  CallSite here(x.where);
  Dims axes;
  for (int64_t axis : order) axes.push_back(normalize_axis(axis, x.value.rank(), "permute"));
  std::vector<int64_t> check(axes.begin(), axes.end());
  std::sort(check.begin(), check.end());
  WEFT_CHECK(Dims(check) == Dims::iota(x.value.rank()),
             "[permute] the order must name every axis once. Got {} for rank {}.", to_string(order),
             x.value.rank());
  return axes == Dims::iota(axes.size()) ? x.value : move(permute_def, x.value, {{"order", axes}});
}

Tensor transpose(Arg x, int a, int b) {
  CallSite here(x.where);
  Dims order = Dims::iota(x.value.rank());
  std::swap(order[normalize_axis(a, order.size(), "transpose")],
            order[normalize_axis(b, order.size(), "transpose")]);
  return permute(x, order);
}

Tensor broadcast_to(Arg x, const Shape& shape) {
  CallSite here(x.where);
  const Shape& from = x.value.shape();
  if (from == shape) return x.value;
  int extra = shape.size() - from.size();
  WEFT_CHECK(extra >= 0, "[broadcast_to] {} has a higher rank than {}.", to_string(from),
             to_string(shape));
  Shape padded = Dims::filled(extra, 1);
  for (int i = 0; i < from.size(); ++i) {
    WEFT_CHECK(from[i] == shape[extra + i] || from[i] == 1,
               "[broadcast_to] {} does not broadcast to {}: axis {}.", to_string(from),
               to_string(shape), extra + i);
    padded.push_back(from[i]);
  }
  Tensor aligned = reshape(x, padded);
  return padded == shape ? aligned : move(broadcast_def, aligned, {{"shape", shape}});
}

Tensor slice(Arg x, int axis, int64_t start, int64_t stop, int64_t step) {
  CallSite here(x.where);
  int at = normalize_axis(axis, x.value.rank(), "slice");
  int64_t extent = x.value.shape()[at];
  WEFT_CHECK(step > 0, "[slice] step must be positive. Got {}. Hint: flip reverses.", step);
  int64_t first = start < 0 ? start + extent : start, last = stop < 0 ? stop + extent : stop;
  WEFT_CHECK(0 <= first && first <= last && last <= extent,
             "[slice] {}:{} is out of range for axis {} of extent {}.", start, stop, at, extent);
  if (first == 0 && last == extent && step == 1) return x.value;
  return move(slice_def, x.value,
              {{"axis", int64_t{at}}, {"start", first}, {"stop", last}, {"step", step}});
}

Tensor flip(Arg x, const Dims& axes) {
  CallSite here(x.where);
  Dims sorted = axes.empty() ? Dims() : reduce_axes(axes, x.value.rank(), "flip");
  return sorted.empty() ? x.value : move(flip_def, x.value, {{"axes", sorted}});
}

Tensor pad(Arg x, const Dims& low, const Dims& high, double value) {
  CallSite here(x.where);
  WEFT_CHECK(low.size() == x.value.rank() && high.size() == x.value.rank(),
             "[pad] one pair per axis. Got {} and {} for rank {}.", low.size(), high.size(),
             x.value.rank());
  bool none = true;
  for (int i = 0; i < low.size(); ++i) {
    WEFT_CHECK(low[i] >= 0 && high[i] >= 0, "[pad] amounts must not be negative. Got {} and {}.",
               to_string(low), to_string(high));
    none &= low[i] == 0 && high[i] == 0;
  }
  return none ? x.value
              : make_node(pad_def, {x.value}, {{"low", low}, {"high", high}, {"value", value}});
}

Tensor concat(std::span<const Tensor> parts, int axis, std::source_location where) {
  CallSite here(where);
  WEFT_CHECK(!parts.empty(), "[concat] needs at least one tensor.");
  int at = normalize_axis(axis, parts[0].rank(), "concat");
  for (const Tensor& part : parts) {
    bool fits = part.dtype() == parts[0].dtype() && part.rank() == parts[0].rank();
    for (int i = 0; fits && i < part.rank(); ++i)
      fits = i == at || part.shape()[i] == parts[0].shape()[i];
    WEFT_CHECK(fits, "[concat] tensors differ outside axis {}. Got {} and {}.", at,
               to_string(parts[0].type()), to_string(part.type()));
  }
  if (parts.size() == 1) return parts[0];
  return make_node(concat_def, {parts.begin(), parts.end()}, {{"axis", int64_t{at}}});
}

Tensor stack(std::span<const Tensor> parts, int axis, std::source_location where) {
  CallSite here(where);
  WEFT_CHECK(!parts.empty(), "[stack] needs at least one tensor.");
  int at = normalize_axis(axis, parts[0].rank() + 1, "stack");
  std::vector<Tensor> raised;
  for (const Tensor& part : parts) {
    WEFT_CHECK(part.type() == parts[0].type(), "[stack] tensors differ. Got {} and {}.",
               to_string(parts[0].type()), to_string(part.type()));
    raised.push_back(unsqueeze(part, at));
  }
  return concat(raised, at);
}

std::vector<Tensor> split(Arg x, int64_t size, int axis) {
  CallSite here(x.where);
  WEFT_CHECK(size > 0, "[split] size must be positive. Got {}.", size);
  std::vector<Tensor> parts;
  int64_t extent = x.value.dim(axis);
  for (int64_t start = 0; start < extent; start += size)
    parts.push_back(slice(x, axis, start, std::min(extent, start + size)));
  return parts;
}

std::vector<Tensor> split(Arg x, std::span<const int64_t> sizes, int axis) {
  CallSite here(x.where);
  int64_t extent = x.value.dim(axis), start = 0;
  bool positive = std::all_of(sizes.begin(), sizes.end(), [](int64_t size) { return size >= 0; });
  WEFT_CHECK(positive && std::accumulate(sizes.begin(), sizes.end(), int64_t{0}) == extent,
             "[split] sizes must be at least 0 and sum to {}, the extent of axis {}. Got [{}].",
             extent, axis, fmt::join(sizes, ", "));
  std::vector<Tensor> parts;
  for (int64_t size : sizes) {
    parts.push_back(slice(x, axis, start, start + size));
    start += size;
  }
  return parts;
}

Tensor squeeze(Arg x, int axis) {
  CallSite here(x.where);
  int at = normalize_axis(axis, x.value.rank(), "squeeze");
  WEFT_CHECK(x.value.shape()[at] == 1, "[squeeze] axis {} has extent {}, not 1.", at,
             x.value.shape()[at]);
  Shape shape;
  for (int i = 0; i < x.value.rank(); ++i)
    if (i != at) shape.push_back(x.value.shape()[i]);
  return reshape(x, shape);
}

Tensor unsqueeze(Arg x, int axis) {
  CallSite here(x.where);
  int at = normalize_axis(axis, x.value.rank() + 1, "unsqueeze");
  Shape shape;
  for (int i = 0; i <= x.value.rank(); ++i) {
    if (i == at) shape.push_back(1);
    if (i < x.value.rank()) shape.push_back(x.value.shape()[i]);
  }
  return reshape(x, shape);
}

Tensor flatten(Arg x, int first, int last) {
  CallSite here(x.where);
  int rank = x.value.rank();
  if (rank == 0) return reshape(x, {1});
  int from = normalize_axis(first, rank, "flatten"), to = normalize_axis(last, rank, "flatten");
  Shape shape;
  for (int i = 0; i < rank; ++i) {
    if (i > from && i <= to)
      shape[shape.size() - 1] *= x.value.shape()[i];
    else
      shape.push_back(x.value.shape()[i]);
  }
  return reshape(x, shape);
}
}  // namespace weft
