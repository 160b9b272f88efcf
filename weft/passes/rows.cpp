#include "weft/passes/rows.h"

#include "weft/ir/op_def.h"
#include "weft/ops/ops.h"

namespace weft {
namespace {
int64_t elements_before(const Shape& shape, int axis) {
  int64_t count = 1;
  for (int i = 0; i < axis; ++i) count *= shape[i];
  return count;
}

bool any_within(const RowAxes& axes, const Dims& others) {
  for (int64_t axis : others)
    if (axes.first <= axis && axis <= axes.last) return true;
  return false;
}

// Of an operand whose axes are those of the result.
std::optional<int64_t> on_same_axes(const Shape& operand, const Shape& result,
                                    const RowAxes& axes) {
  for (int i = axes.first; i <= axes.last; ++i)
    if (operand[i] != result[i]) return std::nullopt;
  return elements_before(operand, axes.first);
}

// Axes first to last, as `order` names them, but those of extent 1.
Dims long_axes(const Shape& shape, const RowAxes& axes, const Dims& order) {
  Dims found;
  for (int i = axes.first; i <= axes.last; ++i)
    if (shape[static_cast<int>(order[i])] != 1) found.push_back(order[i]);
  return found;
}

// Of what is permuted: its rows must stay next to each other, in order.
std::optional<int64_t> before_permutation(const Node& node, const RowAxes& axes, int64_t rows) {
  const Dims& order = node.attrs.dims("order");
  const Shape& shape = node.inputs[0].shape();
  const int64_t before = elements_before(shape, static_cast<int>(order[axes.first]));
  const std::optional<RowAxes> from = row_axes(shape, before, rows);
  const bool same =
      from && long_axes(shape, axes, order) == long_axes(shape, *from, Dims::iota(shape.size()));
  return same ? std::optional(before) : std::nullopt;
}

std::optional<int64_t> before_broadcast(const Node& node, const RowAxes& axes) {
  const Shape& shape = node.inputs[0].shape();
  bool repeats = true;
  for (int i = axes.first; i <= axes.last; ++i) repeats &= shape[i] == 1;
  return repeats ? all_of_it : on_same_axes(shape, node.type.shape, axes);
}

std::optional<int64_t> before_movement(const Node& node, const RowAxes& axes, int64_t before,
                                       int64_t rows) {
  const Shape& shape = node.inputs[0].shape();
  if (node.is("reshape"))
    return row_axes(shape, before, rows) ? std::optional(before) : std::nullopt;
  if (node.is("permute")) return before_permutation(node, axes, rows);
  if (node.is("broadcast")) return before_broadcast(node, axes);
  if (node.is("slice") && !any_within(axes, {node.attrs.integer("axis")}))
    return on_same_axes(shape, node.type.shape, axes);
  return std::nullopt;
}

// a [.., M, K] has the rows, b none.
std::optional<std::vector<int64_t>> product_reads(const Node& node, const RowAxes& axes) {
  const Shape &a = node.inputs[0].shape(), &b = node.inputs[1].shape();
  if (axes.last > a.size() - 2) return std::nullopt;
  for (int i = axes.first; i <= axes.last && i < a.size() - 2; ++i)
    if (b[i] != 1) return std::nullopt;
  const std::optional<int64_t> before = on_same_axes(a, node.type.shape, axes);
  return before ? std::optional(std::vector{*before, all_of_it}) : std::nullopt;
}

std::optional<std::vector<int64_t>> one(std::optional<int64_t> before) {
  return before ? std::optional(std::vector{*before}) : std::nullopt;
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
  switch (node.op->kind) {
    case OpKind::leaf: {
      const bool same = node.is("scalar") ||
                        (node.is("iota") && !any_within(*axes, {node.attrs.integer("axis")}));
      return same ? std::optional(std::vector<int64_t>()) : std::nullopt;
    }
    case OpKind::elementwise:
      return std::vector<int64_t>(node.inputs.size(), before);
    case OpKind::reduce:
      if (any_within(*axes, node.attrs.dims("axes"))) return std::nullopt;
      return one(on_same_axes(node.inputs[0].shape(), node.type.shape, *axes));
    case OpKind::movement:
      return node.inputs.size() == 1 ? one(before_movement(node, *axes, before, rows))
                                     : std::nullopt;
    case OpKind::contraction:
      return node.is("matmul") ? product_reads(node, *axes) : std::nullopt;
    default:
      return std::nullopt;
  }
}

std::optional<int64_t> rows_of_user(const Node& user, const Value& x, int64_t before,
                                    int64_t rows) {
  const std::optional<RowAxes> axes = row_axes(x.shape(), before, rows);
  if (!axes) return std::nullopt;
  int64_t there = before;
  if (user.is("permute")) {
    const Dims& order = user.attrs.dims("order");
    int at = 0;
    while (order[at] != axes->first) ++at;
    there = elements_before(user.type.shape, at);
  } else if (!user.is("reshape")) {
    if (user.type.shape.size() != x.rank()) return std::nullopt;
    there = elements_before(user.type.shape, axes->first);
  }
  const std::optional<std::vector<int64_t>> reads = reads_by_row(user, there, rows);
  for (size_t i = 0; reads && i < user.inputs.size(); ++i)
    if (user.inputs[i].node() == x.node() && (*reads)[i] != before) return std::nullopt;
  return reads ? std::optional(there) : std::nullopt;
}

std::optional<std::vector<int64_t>> sums_over_rows(const Node& node, int64_t rows) {
  if (!node.is("matmul") || node.inputs[0].dim(-1) != rows) return std::nullopt;
  const Shape &a = node.inputs[0].shape(), &b = node.inputs[1].shape();
  if (elements_before(node.type.shape, a.size() - 2) != 1) return std::nullopt;
  return std::vector{elements_before(a, a.size() - 1), elements_before(b, b.size() - 2)};
}

Value rows_of(const Value& x, int64_t before, int64_t rows, int64_t from, int64_t count) {
  const RowAxes axes = row_axes(x.shape(), before, rows).value();
  if (axes.first == axes.last) return slice(x, axes.first, from, from + count);
  const Value merged = reshape(x, with_rows(x.shape(), axes, rows));
  return slice(merged, axes.last, from, from + count);
}

Value for_rows(const Node& node, std::vector<Value> inputs, int64_t before, int64_t rows,
               int64_t count) {
  const Shape shape =
      with_rows(node.type.shape, row_axes(node.type.shape, before, rows).value(), count);
  if (node.op->kind == OpKind::leaf)
    return make_leaf(*node.op, {node.type.dtype, shape}, node.attrs);
  const bool shaped = node.is("reshape") || node.is("broadcast");
  return make_node(*node.op, std::move(inputs), shaped ? Attrs{{"shape", shape}} : node.attrs);
}

Value joined_rows(const std::vector<Value>& parts, const Shape& shape, int64_t before,
                  int64_t rows) {
  return reshape(concat(parts, row_axes(shape, before, rows).value().last), shape);
}

}  // namespace weft
