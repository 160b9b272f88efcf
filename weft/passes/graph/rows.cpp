#include "weft/passes/graph/rows.h"

#include <algorithm>

#include "weft/ir/axis_map.h"
#include "weft/ir/op_def.h"
#include "weft/ir/plan.h"
#include "weft/ops/ops.h"

namespace weft {
namespace {
int64_t elements_before(const Shape& shape, int axis) {
  int64_t count = 1;
  for (int i = 0; i < axis; ++i) count *= shape[i];
  return count;
}

// Returns the factors of axes [first, last].
std::vector<int> factors_of(const std::vector<FactoredAxis>& axes, int first, int last) {
  std::vector<int> found;
  for (int axis = first; axis <= last; ++axis) {
    const std::vector<int>& more = axes[static_cast<size_t>(axis)].factors;
    found.insert(found.end(), more.begin(), more.end());
  }
  return found;
}

// Returns whether the index of a row in the whole is a multiple of the last row axis's stride.
bool is_one_axis(const Node& node, const RowAxes& rows) {
  const Dims strides = place_in_whole(node).strides;
  const Shape& shape = node.type.shape;
  int64_t expected = strides[rows.last];
  for (int axis = rows.last; axis >= rows.first; --axis) {
    if (shape[axis] > 1 && strides[axis] != expected) return false;
    expected *= shape[axis];
  }
  return true;
}

// Returns the number of elements in front of `rows`, if the value has just these factors on
// adjacent axes, in order; `all_of_it` if it has none of them; nullopt otherwise.
std::optional<int64_t> before_factors(const std::vector<FactoredAxis>& axes, const Shape& shape,
                                      const std::vector<int>& rows) {
  const int rank = shape.size();
  auto has = [&](int axis) {
    return std::ranges::any_of(axes[static_cast<size_t>(axis)].factors, [&](int factor) {
      return std::ranges::find(rows, factor) != rows.end();
    });
  };
  int first = 0;
  while (first < rank && !has(first)) ++first;
  if (first == rank) return all_of_it;
  int last = rank - 1;
  while (!has(last)) --last;
  if (factors_of(axes, first, last) != rows) return std::nullopt;
  return elements_before(shape, first);
}
}  // namespace

std::optional<RowAxes> row_axes(const Shape& shape, int64_t before, int64_t rows) {
  int first = 0;
  int64_t count = 1;
  while (first < shape.size() && (count < before || shape[first] == 1)) count *= shape[first++];
  if (count != before || first == shape.size()) return std::nullopt;
  int last = first;
  for (count = shape[first]; count < rows && last + 1 < shape.size();) count *= shape[++last];
  return count == rows ? std::optional(RowAxes{first, last}) : std::nullopt;
}

Shape with_rows(Shape shape, const RowAxes& axes, int64_t count) {
  for (int i = axes.first; i < axes.last; ++i) shape[i] = 1;
  shape[axes.last] = count;
  return shape;
}

std::optional<std::vector<int64_t>> reads_by_row(const Node& node, int64_t before, int64_t rows) {
  const std::optional<RowAxes> axes = row_axes(node.type.shape, before, rows);
  if (!axes) return std::nullopt;
  const AxisMap map = axis_map(node);
  const std::vector<int> factors = factors_of(map.result, axes->first, axes->last);
  for (int factor : factors) {
    const Factor& about = map.factors[static_cast<size_t>(factor)];
    if (about.relation != Relation::plain) return std::nullopt;
    if (about.positional && !(map.has_place && is_one_axis(node, *axes))) return std::nullopt;
    if (!about.count.empty() && factors.size() > 1) return std::nullopt;
  }
  std::vector<int64_t> reads;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const auto there = before_factors(map.operands[i], node.inputs[i].shape(), factors);
    if (!there) return std::nullopt;
    reads.push_back(*there);
  }
  return reads;
}

std::optional<int64_t> rows_of_user(const Node& user, const Value& x, int64_t before,
                                    int64_t rows) {
  const std::optional<RowAxes> axes = row_axes(x.shape(), before, rows);
  if (!axes) return std::nullopt;
  const AxisMap map = axis_map(user);
  const auto operand = std::ranges::find(user.inputs, x.node(), &Value::node);
  const auto& of_x = map.operands[static_cast<size_t>(operand - user.inputs.begin())];
  const auto there =
      before_factors(map.result, user.type.shape, factors_of(of_x, axes->first, axes->last));
  if (!there || *there == all_of_it) return std::nullopt;
  const std::optional<std::vector<int64_t>> reads = reads_by_row(user, *there, rows);
  for (size_t i = 0; reads && i < user.inputs.size(); ++i)
    if (user.inputs[i].node() == x.node() && (*reads)[i] != before) return std::nullopt;
  return reads ? there : std::nullopt;
}

std::optional<std::vector<int64_t>> sums_over_rows(const Node& node, int64_t rows) {
  if (node.op->kind != OpKind::contraction) return std::nullopt;
  const AxisMap map = axis_map(node);
  for (int factor = 0; factor < static_cast<int>(map.factors.size()); ++factor) {
    const Factor& about = map.factors[static_cast<size_t>(factor)];
    if (about.relation != Relation::reduced || about.size != rows) continue;
    std::vector<int64_t> reads;
    for (size_t i = 0; i < node.inputs.size(); ++i)
      if (auto there = before_factors(map.operands[i], node.inputs[i].shape(), {factor}))
        reads.push_back(*there);
    if (reads.size() == node.inputs.size()) return reads;
  }
  return std::nullopt;
}

Value rows_of(const Value& x, int64_t before, int64_t rows, int64_t from, int64_t count) {
  const RowAxes axes = row_axes(x.shape(), before, rows).value();
  if (axes.first == axes.last) return slice(x, axes.first, from, from + count);
  const Value merged = reshape(x, with_rows(x.shape(), axes, rows));
  return slice(merged, axes.last, from, from + count);
}

Value for_rows(const Node& node, std::vector<Value> inputs, int64_t before, int64_t rows,
               int64_t from, int64_t count) {
  const RowAxes axes = row_axes(node.type.shape, before, rows).value();
  Part part{.shape = with_rows(node.type.shape, axes, count),
            .axis = axes.last,
            .from = from,
            .count = count};
  const AxisMap map = axis_map(node);
  const std::vector<int> factors = factors_of(map.result, axes.first, axes.last);
  if (factors.size() == 1) part.factor = factors.front();
  const Attrs attrs = attrs_for(node, map, part);
  return node.op->kind == OpKind::leaf
             ? make_leaf(*node.op, {node.type.dtype, part.shape}, attrs)
             : make_node(*node.op, std::move(inputs), attrs, node.annotations);
}

Value joined_rows(const std::vector<Value>& parts, const Shape& shape, int64_t before,
                  int64_t rows) {
  return reshape(concat(parts, row_axes(shape, before, rows).value().last), shape);
}

}  // namespace weft
