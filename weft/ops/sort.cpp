// Defines sorting: argsort, and the operations that gather by it. All comparisons order NaN above
// all numbers.
#include <cmath>

#include "weft/ir/axis_map.h"
#include "weft/ops/apply.h"

namespace weft {
namespace {
Tensor comes_before(const Tensor& a, const Tensor& b, bool descending) {
  if (descending) return comes_before(b, a, false);
  return is_float(a.dtype()) ? logical_or(a < b, logical_and(is_nan(b), !is_nan(a))) : a < b;
}

// Ranks each element by counting those that come before it, and inverts the ranks with
// first_position(). A row of n takes n^2 comparisons, none of which is stored.
Tensor order_by_counting(const Node& node) {
  const Tensor& x = node.inputs[0];
  const Shape& shape = x.shape();
  if (x.elements() == 0) return zeros(shape, DType::i64);
  const bool descending = node.attrs.integer("descending") != 0;
  const int64_t extent = shape.back(), rows = x.elements() / extent;
  Shape square = shape;
  square.push_back(extent);
  const Tensor mine = broadcast_to(unsqueeze(x, -1), square);
  const Tensor other = broadcast_to(unsqueeze(x, -2), square);
  const Tensor other_is_earlier = iota(square, -1) < iota(square, -2);
  const Tensor counts =
      logical_or(comes_before(other, mine, descending),
                 logical_and(!comes_before(mine, other, descending), other_is_earlier));
  const Tensor place = sum(cast(counts, DType::i64), {.axes = {-1}});
  const Tensor row_start = iota({rows, extent}, 0) * extent;
  const Tensor order = first_position(reshape(place, {rows, extent}) + row_start, rows * extent);
  return reshape(reshape(order, {rows, extent}) - row_start, shape);
}

const OpDef& argsort_def = define({
    .name = "argsort",
    .doc = "the order of the elements along the last axis, least or greatest first; i64",
    .infer = [](std::span<const Tensor> inputs, const Attrs&) -> Type {
      return {DType::i64, inputs[0].shape()};
    },
    .decompose = order_by_counting,
    .flops =
        [](const Node& node) {
          const auto count = static_cast<double>(node.type.elements());
          return count == 0 ? 0 : count * std::log2(static_cast<double>(node.type.shape.back()));
        },
    .axes =
        [](const Node& node) {
          return axis_by_axis(node, [](const Node& each, int axis) {
            const bool sorted = axis == each.type.shape.size() - 1;
            return Factor{.size = each.type.shape[axis],
                          .relation = sorted ? Relation::whole : Relation::plain};
          });
        },
    .test = {.integers = true, .booleans = true, .no_gradient = "yields indices"},
});
}  // namespace

Tensor argsort(Arg x, int axis, bool descending) {
  CallSite here(x.where);
  const int rank = x.value.rank(), at = normalize_axis(axis, rank, "argsort");
  WEFT_CHECK(rank < max_rank, "[argsort] rank is at most {}. Got {}.", max_rank - 1,
             to_string(x.value.shape()));
  const Tensor order = make_node(argsort_def, {transpose(x, at, -1)},
                                 {{"descending", static_cast<int64_t>(descending)}});
  return transpose(order, at, -1);
}
Tensor sort(Arg x, int axis, bool descending) {
  CallSite here(x.where);
  return take_along_axis(x, argsort(x, axis, descending), axis);
}
TopK topk(Arg x, int64_t k, int axis, bool largest) {
  CallSite here(x.where);
  const int at = normalize_axis(axis, x.value.rank(), "topk");
  WEFT_CHECK(k >= 0 && k <= x.value.shape()[at], "[topk] k must be in [0, {}]. Got {}.",
             x.value.shape()[at], k);
  const Tensor indices = slice(argsort(x, at, largest), at, 0, k);
  return {take_along_axis(x, indices, at), indices};
}
}  // namespace weft
