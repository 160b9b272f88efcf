// Maps ONNX's operators that move elements or make constants: shapes, slices, paddings, ranges.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "weft/onnx/file/types.h"
#include "weft/onnx/operators/operators.h"

namespace weft::onnx {
namespace {
using Tensors = std::vector<Tensor>;

Tensor integers_tensor(const std::vector<int64_t>& numbers) {
  return weft::tensor(numbers, {std::ssize(numbers)});
}

Shape shape_from(const Call& call, const std::vector<int64_t>& extents) {
  if (std::ssize(extents) > max_rank)
    call.refuse("a shape has at most {} axes. Got {}", max_rank, extents.size());
  for (int64_t extent : extents)
    if (extent < 0) call.refuse("a shape has no negative extents. Got {}", extent);
  return Shape(extents);
}

// ---- shapes

Tensors shape(const Call& call) {
  const Shape& of = call[0].shape();
  const auto bound = [&](const char* name, int64_t otherwise) {
    const int64_t given = call.integer(name, otherwise);
    return std::clamp<int64_t>(given < 0 ? given + of.size() : given, 0, of.size());
  };
  const int64_t start = bound("start", 0), end = bound("end", of.size());
  std::vector<int64_t> extents(of.begin() + start, of.begin() + std::max(start, end));
  return {integers_tensor(extents)};
}

Tensors reshape_operator(const Call& call) {
  const Tensor& x = call[0];
  std::vector<int64_t> extents = call.integers(1);
  const bool allows_zeros = call.flag("allowzero");
  int64_t known = 1, unknown = -1;
  for (size_t i = 0; i < extents.size(); ++i) {
    if (extents[i] == 0 && !allows_zeros) {
      if (static_cast<int>(i) >= x.rank())
        call.refuse("extent {} of its shape is that of an axis which its operand lacks", i);
      extents[i] = x.dim(static_cast<int>(i));
    }
    if (extents[i] == -1 && unknown < 0)
      unknown = static_cast<int64_t>(i);
    else if (extents[i] < 0 || __builtin_mul_overflow(known, extents[i], &known))
      call.refuse("its shape has an impossible extent {}", extents[i]);
  }
  if (unknown >= 0) {
    if (known == 0 || x.elements() % known != 0)
      call.refuse("{} elements do not fill a shape of {} times an unknown extent", x.elements(),
                  known);
    extents[static_cast<size_t>(unknown)] = x.elements() / known;
  }
  return {reshape(x, shape_from(call, extents))};
}

Tensors flatten_operator(const Call& call) {
  const Tensor& x = call[0];
  const int64_t given = call.integer("axis", 1);
  const int64_t axis = given < 0 ? given + x.rank() : given;
  if (axis < 0 || axis > x.rank()) call.refuse("axis {} is outside of its operand", given);
  return {as_matrix(x, static_cast<int>(axis))};
}

Tensors squeeze_operator(const Call& call) {
  const Tensor& x = call[0];
  const auto axes = call.axes(1, 13, x.rank());
  Shape kept;
  for (int i = 0; i < x.rank(); ++i) {
    const bool goes = axes ? std::ranges::find(*axes, i) != axes->end() : x.dim(i) == 1;
    if (goes && x.dim(i) != 1) call.refuse("axis {} has extent {}, not 1", i, x.dim(i));
    if (!goes) kept.push_back(x.dim(i));
  }
  return {reshape(x, kept)};
}

Tensors unsqueeze_operator(const Call& call) {
  const Tensor& x = call[0];
  const auto given = call.opset() < 13 ? call.integers("axes") : call.integers(1);
  const int rank = x.rank() + static_cast<int>(given.size());
  if (rank > max_rank)
    call.refuse("its result would have {} axes; weft has at most {}", rank, max_rank);
  std::vector<bool> is_new(static_cast<size_t>(rank));
  for (int64_t axis : given) is_new[static_cast<size_t>(call.axis_in(axis, rank))] = true;
  Shape shape;
  for (int i = 0, from = 0; i < rank; ++i) {
    if (!is_new[static_cast<size_t>(i)] && from >= x.rank()) call.refuse("it names an axis twice");
    shape.push_back(is_new[static_cast<size_t>(i)] ? 1 : x.dim(from++));
  }
  return {reshape(x, shape)};
}

Tensors transpose_operator(const Call& call) {
  const Tensor& x = call[0];
  std::vector<int64_t> order = call.integers("perm");
  if (!call.has("perm"))
    for (int i = x.rank(); i-- > 0;) order.push_back(i);
  if (std::ssize(order) != x.rank())
    call.refuse("attribute 'perm' names {} axes of {}", order.size(), x.rank());
  return {permute(x, Dims(order))};
}

Tensors expand(const Call& call) {
  const Tensor& x = call[0];
  const std::vector<int64_t> wanted = call.integers(1);
  const size_t rank = std::max(wanted.size(), static_cast<size_t>(x.rank()));
  std::vector<int64_t> shape(rank, 1);
  for (size_t i = 0; i < rank; ++i) {
    const auto from = static_cast<int64_t>(i) - static_cast<int64_t>(rank) + x.rank();
    const auto to = static_cast<int64_t>(i + wanted.size()) - static_cast<int64_t>(rank);
    const int64_t own = from < 0 ? 1 : x.dim(static_cast<int>(from));
    const int64_t other = to < 0 ? 1 : wanted[static_cast<size_t>(to)];
    shape[i] = own == 1 ? other : own;
  }
  return {broadcast_to(x, shape_from(call, shape))};
}

Tensors tile_operator(const Call& call) { return {tile(call[0], Dims(call.integers(1)))}; }

// ---- parts

Tensors concat_operator(const Call& call) {
  const Tensors parts = call.all();
  return {concat(parts, call.axis("axis", call.opset() < 4 ? 1 : 0, parts[0].rank()))};
}

Tensors split_operator(const Call& call) {
  const Tensor& x = call[0];
  const int axis = call.axis("axis", 0, x.rank());
  std::vector<int64_t> sizes = call.opset() < 13 ? call.integers("split")
                               : call.has(1)     ? call.integers(1)
                                                 : std::vector<int64_t>();
  if (sizes.empty()) {
    const int64_t parts = call.integer("num_outputs", static_cast<int64_t>(call.results()));
    if (parts < 1 || parts > std::max<int64_t>(x.dim(axis), 1))
      call.refuse("an axis of {} has no {} parts", x.dim(axis), parts);
    const int64_t size = (x.dim(axis) + parts - 1) / parts;
    for (int64_t i = 0, left = x.dim(axis); i < parts; ++i, left -= size)
      sizes.push_back(std::clamp<int64_t>(left, 0, size));
  }
  const int64_t total = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
  if (total != x.dim(axis) || std::ranges::any_of(sizes, [](int64_t size) { return size < 0; }))
    call.refuse("its parts have {} elements along an axis of {}", total, x.dim(axis));
  return split(x, std::span<const int64_t>(sizes), axis);
}

// Slices one axis as Python does; steps may be negative.
Tensor slice_axis(const Tensor& x, int axis, int64_t start, int64_t end, int64_t step) {
  const int64_t extent = x.dim(axis);
  const auto from_end = [&](int64_t at) { return at < 0 && at >= -extent ? at + extent : at; };
  if (step > 0) {
    const int64_t first = std::clamp<int64_t>(from_end(start), 0, extent);
    const int64_t last = std::clamp<int64_t>(from_end(end), first, extent);
    if (first == 0 && last == extent && step == 1) return x;
    return slice(x, axis, first, last, std::min(step, std::max<int64_t>(extent, 1)));
  }
  const int64_t first = std::clamp<int64_t>(from_end(start), -1, extent - 1);
  const int64_t last = std::clamp<int64_t>(from_end(end), -1, first);
  const int64_t stride = std::min(-std::max(step, -extent - 1), std::max<int64_t>(extent, 1));
  return slice(flip(x, {axis}), axis, extent - 1 - first, extent - 1 - last, stride);
}

Tensors slice_operator(const Call& call) {
  Tensor x = call[0];
  const bool by_attributes = call.opset() < 10;
  const auto starts = by_attributes ? call.integers("starts") : call.integers(1);
  const auto ends = by_attributes ? call.integers("ends") : call.integers(2);
  std::vector<int64_t> axes = by_attributes ? call.integers("axes")
                              : call.has(3) ? call.integers(3)
                                            : std::vector<int64_t>();
  if (axes.empty())
    for (size_t i = 0; i < starts.size(); ++i) axes.push_back(static_cast<int64_t>(i));
  const auto steps =
      !by_attributes && call.has(4) ? call.integers(4) : std::vector<int64_t>(starts.size(), 1);
  if (ends.size() != starts.size() || axes.size() != starts.size() || steps.size() != starts.size())
    call.refuse("it has {} starts, {} ends, {} axes and {} steps", starts.size(), ends.size(),
                axes.size(), steps.size());
  for (size_t i = 0; i < starts.size(); ++i) {
    if (steps[i] == 0) call.refuse("a step is not 0");
    x = slice_axis(x, call.axis_in(axes[i], x.rank()), starts[i], ends[i], steps[i]);
  }
  return {x};
}

// ---- paddings

// Returns which element of an axis stands at each place of the padded one.
std::vector<int64_t> padded_axis(int64_t extent, int64_t low, int64_t high,
                                 const std::string& mode) {
  std::vector<int64_t> from;
  for (int64_t at = -low; at < extent + high; ++at) {
    if (mode == "edge") {
      from.push_back(std::clamp<int64_t>(at, 0, extent - 1));
    } else if (mode == "wrap") {
      from.push_back((at % extent + extent) % extent);
    } else {
      const int64_t period = std::max<int64_t>(2 * (extent - 1), 1);
      const int64_t place = (at % period + period) % period;
      from.push_back(place < extent ? place : period - place);
    }
  }
  return from;
}

Tensors pad_operator(const Call& call) {
  Tensor x = call[0];
  const std::string mode = call.text("mode", "constant");
  const auto pads = call.opset() < 11 ? call.integers("pads") : call.integers(1);
  const double value = call.opset() < 11                       ? call.number("value", 0.0)
                       : call.has(2) && call[2].elements() > 0 ? call.number_at(2)
                                                               : 0.0;
  std::vector<int> axes(static_cast<size_t>(x.rank()));
  std::iota(axes.begin(), axes.end(), 0);
  if (const auto given = call.axes(3, 18, x.rank()); call.opset() >= 18 && given) axes = *given;
  if (pads.size() != 2 * axes.size())
    call.refuse("it has {} pads for {} axes", pads.size(), axes.size());
  Dims low = Dims::filled(x.rank(), 0), high = low;
  for (size_t i = 0; i < axes.size(); ++i) {
    low[axes[i]] = pads[i];
    high[axes[i]] = pads[i + axes.size()];
  }
  for (int axis = 0; axis < x.rank(); ++axis) {  // negative pads cut
    const int64_t first = std::max<int64_t>(-low[axis], 0);
    const int64_t last = x.dim(axis) - std::max<int64_t>(-high[axis], 0);
    if (first > last)
      call.refuse("it cuts more than the {} elements of axis {}", x.dim(axis), axis);
    if (first > 0 || last < x.dim(axis)) x = slice(x, axis, first, last);
    low[axis] = std::max<int64_t>(low[axis], 0);
    high[axis] = std::max<int64_t>(high[axis], 0);
  }
  if (mode == "constant") return {pad(x, low, high, value)};
  if (mode != "edge" && mode != "reflect" && mode != "wrap")
    call.refuse("its mode is '{}', which weft does not know", mode);
  for (int axis = 0; axis < x.rank(); ++axis) {
    if (low[axis] == 0 && high[axis] == 0) continue;
    if (x.dim(axis) == 0) call.refuse("axis {} has no elements to repeat", axis);
    x = gather(x, integers_tensor(padded_axis(x.dim(axis), low[axis], high[axis], mode)), axis);
  }
  return {x};
}

Tensors center_crop_pad(const Call& call) {
  Tensor x = call[0];
  const std::vector<int64_t> wanted = call.integers(1);
  std::vector<int64_t> axes = call.integers("axes");
  if (axes.empty())
    for (size_t i = 0; i < wanted.size(); ++i) axes.push_back(static_cast<int64_t>(i));
  for (size_t i = 0; i < axes.size() && i < wanted.size(); ++i) {
    const int axis = call.axis_in(axes[i], x.rank());
    const int64_t extent = x.dim(axis), difference = wanted[i] - extent;
    if (difference < 0) {
      const int64_t first = -difference / 2;
      x = slice(x, axis, first, first + wanted[i]);
    } else if (difference > 0) {
      Dims low = Dims::filled(x.rank(), 0), high = low;
      low[axis] = difference / 2;
      high[axis] = difference - difference / 2;
      x = pad(x, low, high);
    }
  }
  return {x};
}

// ---- constants

Tensors constant_operator(const Call& call) {
  if (const Tensor value = call.tensor("value"); value.defined())
    return {call.with_bits(value, call.node().value_bits)};
  if (call.has("value_int"))
    return {scalar(static_cast<double>(call.integer("value_int")), DType::i64)};
  if (call.has("value_float")) return {scalar(call.number("value_float"), DType::f32)};
  if (call.has("value_ints")) return {integers_tensor(call.integers("value_ints"))};
  if (call.has("value_floats")) {
    const std::vector<double> numbers = call.numbers("value_floats");
    return {weft::tensor(numbers, {std::ssize(numbers)}, DType::f32)};
  }
  call.refuse("it is a constant of a kind that weft has no tensors for");
}

Tensors constant_of_shape(const Call& call) {
  const Shape shape = shape_from(call, call.integers(0));
  const Tensor value = call.tensor("value");
  if (!value.defined()) return {full(shape, 0, DType::f32)};
  if (value.elements() != 1)
    call.refuse("attribute 'value' has one element. Got {}", value.elements());
  return {broadcast_to(reshape(value, {}), shape)};
}

Tensors range_operator(const Call& call) {
  const DType dtype = call[0].dtype();
  const double start = call.number_at(0), limit = call.number_at(1), delta = call.number_at(2);
  if (delta == 0) call.refuse("its step is not 0");
  const double count = std::max(0.0, std::ceil((limit - start) / delta));
  if (!(count < 0x1p40)) call.refuse("{} elements are too many", count);
  const Tensor steps = arange(static_cast<int64_t>(count), dtype);
  return {steps * scalar(delta, dtype) + scalar(start, dtype)};
}

Tensors eye_like(const Call& call) {
  const Tensor& x = call[0];
  const DType dtype = call.has("dtype") ? call.type_of(call.integer("dtype")).dtype : x.dtype();
  if (x.rank() != 2) call.refuse("its operand is a matrix. Got {}", to_string(x.type()));
  const Tensor diagonal = iota(x.shape(), 0) + call.integer("k", 0);
  return {cast(equal(iota(x.shape(), 1), diagonal), dtype)};
}

Tensors trilu(const Call& call) {
  const Tensor& x = call[0];
  if (x.rank() < 2) call.refuse("its operand is a matrix. Got {}", to_string(x.type()));
  const int64_t k = call.has(1) ? call.integer_at(1) : 0;
  const Shape matrix{x.dim(-2), x.dim(-1)};
  const Tensor distance = iota(matrix, 1) - iota(matrix, 0);
  const Tensor kept =
      call.flag("upper", true) ? greater_equal(distance, k) : less_equal(distance, k);
  return {select(kept, x, zeros_like(x))};
}

// ---- blocks of pixels

void check_images(const Call& call) {
  if (call[0].rank() != 4)
    call.refuse("its operand is [N, C, H, W]. Got {}", to_string(call[0].type()));
}
// Returns the side of a block of pixels, which is at most `most`.
int64_t block_side(const Call& call, int64_t most) {
  const int64_t side = call.integer("blocksize");
  if (side < 1 || side > most)
    call.refuse("its blocksize is from 1 to {}. Got {}", std::max<int64_t>(most, 1), side);
  return side;
}
Tensors depth_to_space(const Call& call) {
  check_images(call);
  const Tensor& x = call[0];
  const auto most = static_cast<int64_t>(std::sqrt(static_cast<double>(x.dim(1))));
  const int64_t b = block_side(call, most), c = x.dim(1) / (b * b), h = x.dim(2), w = x.dim(3);
  if (call.text("mode", "DCR") == "CRD") {
    const Tensor parts = reshape(x, {x.dim(0), c, b, b, h, w});
    return {reshape(permute(parts, {0, 1, 4, 2, 5, 3}), {x.dim(0), c, h * b, w * b})};
  }
  const Tensor parts = reshape(x, {x.dim(0), b, b, c, h, w});
  return {reshape(permute(parts, {0, 3, 4, 1, 5, 2}), {x.dim(0), c, h * b, w * b})};
}
Tensors space_to_depth(const Call& call) {
  check_images(call);
  const Tensor& x = call[0];
  const int64_t b = block_side(call, std::min(x.dim(2), x.dim(3)));
  const int64_t c = x.dim(1), h = x.dim(2) / b, w = x.dim(3) / b;
  const Tensor parts = reshape(x, {x.dim(0), c, h, b, w, b});
  const bool by_channel = call.text("mode", "DCR") == "CRD";
  const Dims order = by_channel ? Dims{0, 1, 3, 5, 2, 4} : Dims{0, 3, 5, 1, 2, 4};
  return {reshape(permute(parts, order), {x.dim(0), b * b * c, h, w})};
}

const Operator movement_rows[] = {
    {"CenterCropPad", "@18 2 -> 1: axes", center_crop_pad, "", 0b10},
    {"Concat", "* -> 1: axis", concat_operator},
    {"Constant",
     "0 -> 1: sparse_value@11 value value_float@12 value_floats@12 value_int@12 value_ints@12 "
     "value_string@12 value_strings@12",
     constant_operator},
    {"ConstantOfShape", "@9 1 -> 1: value", constant_of_shape, "", 0b1},
    {"DepthToSpace", "1 -> 1: blocksize mode@11", depth_to_space},
    {"Expand", "@8 2 -> 1", expand, "", 0b10},
    {"EyeLike", "@9 1 -> 1: dtype k", eye_like},
    {"Flatten", "1 -> 1: axis", flatten_operator},
    {"Pad", "1 3@11 4@18 -> 1: mode pads@-10 value@-10", pad_operator, "", 0b1110},
    {"Range", "@11 3 -> 1: stash_type@27", range_operator, "", 0b111},
    {"Reshape", "2 -> 1: allowzero@14 consumed_inputs", reshape_operator, "", 0b10},
    {"Shape", "1 -> 1: end@15 start@15", shape},
    {"Size", "1 -> 1",
     [](const Call& call) -> Tensors {
       return {scalar(static_cast<double>(call[0].elements()), DType::i64)};
     }},
    {"Slice", "1 5@10 -> 1: axes@-9 ends@-9 starts@-9", slice_operator, "", 0b11110},
    {"SpaceToDepth", "1 -> 1: blocksize mode@28", space_to_depth},
    {"Split", "1 2@13 -> *: axis num_outputs@18 split@-12", split_operator, "", 0b10},
    {"Squeeze", "1 2@13 -> 1: axes@-12", squeeze_operator, "", 0b10},
    {"Tile", "2 -> 1", tile_operator, "", 0b10},
    {"Transpose", "1 -> 1: perm", transpose_operator},
    {"Trilu", "@14 2 -> 1: upper", trilu, "", 0b10},
    {"Unsqueeze", "1 2@13 -> 1: axes@-12", unsqueeze_operator, "", 0b10},
};
}  // namespace

std::span<const Operator> movement_operators() { return movement_rows; }

}  // namespace weft::onnx
