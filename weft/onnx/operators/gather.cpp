// Maps ONNX's operators that read or write elements at indices, sort, or count.
#include <algorithm>
#include <limits>
#include <numeric>

#include "weft/onnx/operators/operators.h"
#include "weft/onnx/operators/unrounded.h"
#include "weft/tensor/wide.h"

namespace weft::onnx {
namespace {
using Tensors = std::vector<Tensor>;

// Return indices of an axis in [0, extent): negative ones count from the end.
Tensor from_start(const Tensor& indices, int64_t extent) {
  return select(less(indices, 0), indices + extent, indices);
}
Tensor from_start(const Call& call, size_t input, int64_t extent) {
  const Tensor& indices = call[input];
  if (call.is_constant(input)) {
    const std::vector<int64_t> known = call.integers(input);
    for (int64_t index : known)
      if (index < -extent || index >= extent)
        call.refuse("index {} is outside of an axis of {}", index, extent);
    if (std::ranges::all_of(known, [](int64_t index) { return index >= 0; })) return indices;
  } else {
    call.note_indices(input, extent);
  }
  return from_start(indices, extent);
}

Tensors gather_operator(const Call& call) {
  const Tensor& x = call[0];
  const int axis = call.axis("axis", 0, x.rank());
  return {gather(x, from_start(call, 1, x.dim(axis)), axis)};
}

// Cuts the axes other than `axis` to the extents of `like`.
Tensor cut_beside(const Tensor& x, const Shape& like, int axis) {
  Tensor y = x;
  for (int i = 0; i < x.rank(); ++i)
    if (i != axis && like[i] < x.dim(i)) y = slice(y, i, 0, like[i]);
  return y;
}

Tensors gather_elements(const Call& call) {
  const Tensor& x = call[0];
  const int axis = call.axis("axis", 0, x.rank());
  const Tensor indices = from_start(call, 1, x.dim(axis));
  return {take_along_axis(cut_beside(x, indices.shape(), axis), indices, axis)};
}

int64_t product(const Shape& shape, int from, int to) {
  int64_t count = 1;
  for (int i = from; i < to; ++i) count *= shape[i];
  return count;
}

// Turns each index tuple along the last axis of `indices` into a row-major position in the axes of
// `shape` that begin with axis `first`.
Tensor positions_of(const Call& call, const Tensor& indices, const Shape& shape, int first) {
  const int64_t depth = indices.dim(-1);
  if (first + depth > shape.size())
    call.refuse("its indices have {} numbers for {} axes", depth, shape.size() - first);
  Tensor position;
  for (int64_t i = 0; i < depth; ++i) {
    const int64_t extent = shape[first + static_cast<int>(i)];
    const Tensor one = squeeze(slice(indices, -1, i, i + 1), -1);
    const Tensor index = from_start(cast(one, DType::i64), extent);
    position = i == 0 ? index : position * extent + index;
  }
  return position.defined()
             ? position
             : zeros(Shape(std::span(indices.shape().begin(), indices.shape().end() - 1)),
                     DType::i64);
}

Shape joined(const Shape& a, int a_end, const Shape& b, int b_begin) {
  Shape shape;
  for (int i = 0; i < a_end; ++i) shape.push_back(a[i]);
  for (int i = b_begin; i < b.size(); ++i) shape.push_back(b[i]);
  return shape;
}

Tensors gather_nd(const Call& call) {
  const Tensor &x = call[0], &indices = call[1];
  const auto batch = static_cast<int>(call.integer("batch_dims", 0));
  const auto depth = static_cast<int>(indices.dim(-1));
  const Tensor inner = positions_of(call, indices, x.shape(), batch);
  const int64_t batches = product(x.shape(), 0, batch);
  const int64_t rows = product(x.shape(), batch, batch + depth);
  Tensor position = reshape(inner, {batches, batches == 0 ? 0 : inner.elements() / batches});
  position = position + iota(position.shape(), 0) * rows;
  const int64_t width = product(x.shape(), batch + depth, x.rank());
  const Tensor found = gather(reshape(x, {batches * rows, width}), position, 0);
  return {reshape(found, joined(indices.shape(), indices.rank() - 1, x.shape(), batch + depth))};
}

// Combines rows[N, W] with updates[M, W] at positions[M], by the node's `reduction`. mul, max and
// min compare each row with each update.
Tensor scatter_rows(const Call& call, const Tensor& rows, const Tensor& positions,
                    const Tensor& updates) {
  const std::string how = call.text("reduction", "none");
  if (how == "none") return index_put(rows, positions, updates);
  if (how == "add") return scatter_add(rows, positions, updates);
  if (how != "mul" && how != "max" && how != "min")
    call.refuse("its reduction is '{}', which weft does not know", how);
  const Shape all{rows.dim(0), updates.dim(0), rows.dim(1)};
  const Tensor here = equal(iota(all, 0), reshape(positions, {1, updates.dim(0), 1}));
  const Tensor spread = broadcast_to(unsqueeze(updates, 0), all);
  const ReduceOptions over{.axes = {1}};
  if (how == "mul")
    return rows * cast(prod(select(here, spread, ones_like(spread)), over), rows.dtype());
  const Tensor own = broadcast_to(unsqueeze(rows, 1), all);
  const Tensor candidates = select(here, spread, own);
  return how == "max" ? maximum(rows, max(candidates, over)) : minimum(rows, min(candidates, over));
}

Tensors scatter_elements(const Call& call) {
  const Tensor& x = call[0];
  const Tensor& updates = call[2];
  const int axis = call.axis("axis", 0, x.rank());
  const Tensor indices = cast(from_start(call, 1, x.dim(axis)), DType::i64);
  if (!(indices.shape() == updates.shape()))
    call.refuse("its indices are {} and its updates {}", to_string(indices.shape()),
                to_string(updates.shape()));
  // Row-major position in x of each update: along `axis` by its index, along other axes by its own
  // place.
  const Dims strides = row_major_strides(x.shape());
  Tensor position = indices * strides[axis];
  for (int i = 0; i < x.rank(); ++i)
    if (i != axis) position = position + iota(indices.shape(), i) * strides[i];
  const Tensor result =
      scatter_rows(call, reshape(x, {x.elements(), 1}), reshape(position, {position.elements()}),
                   reshape(updates, {updates.elements(), 1}));
  return {reshape(result, x.shape())};
}

Tensors scatter_nd(const Call& call) {
  const Tensor &x = call[0], &indices = call[1], &updates = call[2];
  const Tensor position = positions_of(call, indices, x.shape(), 0);
  const auto depth = static_cast<int>(indices.dim(-1));
  const int64_t rows = product(x.shape(), 0, depth), width = product(x.shape(), depth, x.rank());
  const Tensor result =
      scatter_rows(call, reshape(x, {rows, width}), reshape(position, {position.elements()}),
                   reshape(updates, {position.elements(), width}));
  return {reshape(result, x.shape())};
}

Tensors one_hot_operator(const Call& call) {
  const Tensor indices = cast(call[0], DType::i64);
  const int64_t depth = static_cast<int64_t>(call.number_at(1));
  if (depth < 0) call.refuse("it has {} classes", depth);
  const Tensor& values = call[2];
  const int axis = call.axis("axis", -1, indices.rank() + 1);
  Shape shape = indices.shape(), result;
  for (int i = 0, from = 0; i <= indices.rank(); ++i)
    result.push_back(i == axis ? depth : shape[from++]);
  const Tensor index = unsqueeze(from_start(indices, depth), axis);
  const Tensor hot = equal(iota(result, axis), index);
  const Tensor off = reshape(slice(values, 0, 0, 1), {}), on = reshape(slice(values, 0, 1, 2), {});
  return {select(hot, on, off)};
}

Tensors compress(const Call& call) {
  const std::vector<double> kept = call.numbers(1);
  std::vector<int64_t> places;
  for (size_t i = 0; i < kept.size(); ++i)
    if (kept[i] != 0) places.push_back(static_cast<int64_t>(i));
  const Tensor& x = call[0];
  const bool flat = !call.has("axis");
  const int axis = flat ? 0 : call.axis("axis", 0, x.rank());
  return {gather(flat ? reshape(x, {x.elements()}) : x, weft::tensor(places, {std::ssize(places)}),
                 axis)};
}

// NonZero and Unique have results whose size depends on elements, so they take constants.
Tensors non_zero(const Call& call) {
  const std::vector<double> elements = call.numbers(0);
  const Shape& shape = call[0].shape();
  std::vector<int64_t> found;
  for (size_t i = 0; i < elements.size(); ++i)
    if (elements[i] != 0) found.push_back(static_cast<int64_t>(i));
  const Dims strides = row_major_strides(shape);
  std::vector<int64_t> places;
  for (int axis = 0; axis < shape.size(); ++axis)
    for (int64_t at : found) places.push_back(at / strides[axis] % shape[axis]);
  return {weft::tensor(places, {shape.size(), std::ssize(found)})};
}

Tensors reverse_sequence(const Call& call) {
  const Tensor& x = call[0];
  const int time = call.axis("time_axis", 0, x.rank()),
            batch = call.axis("batch_axis", 1, x.rank());
  Shape beside = Dims::filled(x.rank(), 1);
  beside[batch] = x.dim(batch);
  const Tensor lengths = reshape(cast(call[1], DType::i64), beside);
  const Tensor step = iota(x.shape(), time);
  return {take_along_axis(x, select(less(step, lengths), lengths - 1 - step, step), time)};
}

Tensors topk_operator(const Call& call) {
  const Tensor& x = call[0];
  const int64_t k = call.opset() < 10 ? call.integer("k") : call.integer_at(1);
  const int axis = call.axis("axis", -1, x.rank());
  if (k < 0 || k > x.dim(axis)) call.refuse("an axis of {} has no {} greatest", x.dim(axis), k);
  const TopK found = topk(before_rounding(x), k, axis, call.flag("largest", true));
  return {narrow_to(found.values, x.dtype()), found.indices};
}

// Writes updates into a cache of keys or values, each row of the batch from its own position on.
Tensors tensor_scatter(const Call& call) {
  const Tensor &cache = call[0], &updates = call[1];
  const int axis = call.axis("axis", -2, cache.rank());
  const int64_t batch = cache.dim(0), extent = cache.dim(axis);
  const Tensor start = call.has(2) ? cast(call[2], DType::i64) : zeros({batch}, DType::i64);
  Shape beside = Dims::filled(cache.rank(), 1);
  beside[0] = batch;
  Tensor position = iota(updates.shape(), axis) + reshape(start, beside);
  if (call.text("mode", "linear") == "circular") position = remainder(position, extent);
  return {put_along_axis(cache, position, updates, axis)};
}

Tensors array_feature_extractor(const Call& call) {
  const Tensor& x = call[0];
  const Tensor indices = reshape(call[1], {call[1].elements()});
  const Tensor rows = x.rank() == 1 ? unsqueeze(x, 0) : x;
  return {gather(rows, indices, rows.rank() - 1)};
}

const Operator gather_rows[] = {
    {"ArrayFeatureExtractor", "2 -> 1", array_feature_extractor, "ai.onnx.ml", 0b10},
    {"Compress", "@9 2 -> 1: axis", compress, "", 0b10},
    {"Gather", "2 -> 1: axis", gather_operator},
    {"GatherElements", "@11 2 -> 1: axis", gather_elements},
    {"GatherND", "@11 2 -> 1: batch_dims@12", gather_nd},
    {"NonZero", "@9 1 -> 1", non_zero, "", 0b1},
    {"OneHot", "@9 3 -> 1: axis", one_hot_operator, "", 0b10},
    {"ReverseSequence", "@10 2 -> 1: batch_axis time_axis", reverse_sequence},
    {"Scatter", "@9 3 -> 1: axis", scatter_elements},
    {"ScatterElements", "@11 3 -> 1: axis reduction@16", scatter_elements},
    {"ScatterND", "@11 3 -> 1: reduction@16", scatter_nd},
    {"TensorScatter", "@24 3 -> 1: axis mode", tensor_scatter},
    {"TopK", "1 2@10 -> 2: axis k@-9 largest@11 sorted@11", topk_operator, "", 0b10},
};
}  // namespace

std::span<const Operator> gather_operators() { return gather_rows; }

}  // namespace weft::onnx
