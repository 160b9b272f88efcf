// Defines grouped matrix products: rows that are sorted by group, each group with a matrix of its
// own, as the experts of a mixture have them (MegaBlocks: Gale et al. 2022). How many rows a group
// has is a value, so that shapes stay static. The product and its weight gradient are each other's
// gradients.
#include "weft/ir/axis_map.h"
#include "weft/ops/apply.h"

namespace weft {
namespace {
void check_groups(const Tensor& rows, const Tensor& other, const Tensor& counts,
                  std::string_view op) {
  WEFT_CHECK(is_float(rows.dtype()) && !info(rows.dtype()).stored_only,
             "[{}] takes floating point rows. Got {}. Hint: cast them.", op, name(rows.dtype()));
  WEFT_CHECK(other.dtype() == rows.dtype(), "[{}] types differ. Got {} and {}.", op,
             name(rows.dtype()), name(other.dtype()));
  WEFT_CHECK(is_integer(counts.dtype()) && counts.rank() == 1,
             "[{}] counts are integers [E], the rows of each group. Got {}.", op,
             to_string(counts.type()));
}

Type grouped_product_type(std::span<const Tensor> inputs, const Attrs&) {
  const Tensor &x = inputs[0], &w = inputs[1], &counts = inputs[2];
  check_groups(x, w, counts, "grouped_matmul");
  WEFT_CHECK(x.rank() == 2 && w.rank() == 3 && w.dim(1) == x.dim(1) && w.dim(0) == counts.dim(0),
             "[grouped_matmul] takes x[M, K], w[E, K, N] and counts[E]. Got {}, {} and {}.",
             to_string(x.shape()), to_string(w.shape()), to_string(counts.shape()));
  return {x.dtype(), {x.dim(0), w.dim(2)}};
}

Type grouped_weight_gradient_type(std::span<const Tensor> inputs, const Attrs&) {
  const Tensor &x = inputs[0], &dy = inputs[1], &counts = inputs[2];
  check_groups(x, dy, counts, "grouped_matmul_weight_gradient");
  WEFT_CHECK(x.rank() == 2 && dy.rank() == 2 && dy.dim(0) == x.dim(0),
             "[grouped_matmul_weight_gradient] takes x[M, K], dy[M, N] and counts[E]. Got {} and "
             "{}.",
             to_string(x.shape()), to_string(dy.shape()));
  return {x.dtype(), {counts.dim(0), x.dim(1), dy.dim(1)}};
}

// Returns whether row m belongs to group e, as bool [E, M, 1]. Counts are clamped to [0, M], so
// that their sums do not overflow.
Tensor members(const Tensor& counts, int64_t rows) {
  const int64_t groups = counts.dim(0);
  const Tensor count = minimum(maximum(cast(counts, DType::i64), 0), rows);
  const Tensor end = reshape(cumsum(count, 0), {groups, 1, 1});
  const Tensor start = end - reshape(count, {groups, 1, 1});
  const Tensor row = iota({groups, rows, 1}, 1);
  return logical_and(row >= start, row < end);
}

const OpDef& weight_gradient_def = define({
    .name = "grouped_matmul_weight_gradient",
    .arity = 3,
    .doc =
        "x[M, K], dy[M, N], counts[E] -> [E, K, N]: x transposed times dy over each group's rows",
    .infer = grouped_weight_gradient_type,
    .gradient = [](const Tensor& y, const Tensor& upstream) -> Gradients {
      const Tensor &x = y->inputs[0], &dy = y->inputs[1], &counts = y->inputs[2];
      return {
          grouped_matmul(dy, transpose(upstream), counts), grouped_matmul(x, upstream, counts), {}};
    },
    // Both factors are set to zero outside of a group, because zero times infinity is NaN.
    .decompose = [](const Node& node) -> Tensor {
      const Tensor &x = node.inputs[0], &dy = node.inputs[1];
      const Tensor inside = members(node.inputs[2], x.dim(0));
      return matmul(transpose(select(inside, unsqueeze(x, 0), 0)),
                    select(inside, unsqueeze(dy, 0), 0));
    },
    .family = OpFamily::grouped_product,
    .role = Role::weight_gradient,
    .flops =
        [](const Node& node) {
          return 2.0 * static_cast<double>(node.inputs[0].elements()) *
                 static_cast<double>(node.type.shape[2]);
        },
    .axes =
        [](const Node& node) {
          AxisMap map(node);
          const Shape& y = node.type.shape;
          constexpr int result = AxisMap::of_result;
          map.relate(node, {.size = y[0], .relation = Relation::whole}, {{result, 0}, {2, 0}});
          map.relate(node, {.size = y[1]}, {{result, 1}, {0, 1}});
          map.relate(node, {.size = y[2]}, {{result, 2}, {1, 1}});
          map.relate(node, {.size = node.inputs[0].dim(0), .relation = Relation::whole},
                     {{0, 0}, {1, 0}});
          return map;
        },
    .narrows = true,
});

const OpDef& grouped_matmul_def = define({
    .name = "grouped_matmul",
    .arity = 3,
    .doc = "x[M, K], w[E, K, N], counts[E] -> [M, N]: the first counts[0] rows of x times w[0], "
           "the next counts[1] times w[1], ...; zeros behind them",
    .infer = grouped_product_type,
    .gradient = [](const Tensor& y, const Tensor& dy) -> Gradients {
      const Tensor &x = y->inputs[0], &w = y->inputs[1], &counts = y->inputs[2];
      auto weight_gradient = [&](const Tensor& rows, const Tensor& columns) {
        return make_node(weight_gradient_def, {rows, columns, counts});
      };
      // The gradient of a transposed weight gets the weight's layout, so that the update reads it
      // contiguously.
      const Tensor dw =
          w->is("permute") ? transpose(weight_gradient(dy, x)) : weight_gradient(x, dy);
      return {grouped_matmul(dy, transpose(w), counts), dw, {}};
    },
    // Multiplies all rows by all matrices, E times the work. The products with matrices of other
    // groups are dropped by a select, because they may be infinite.
    .decompose = [](const Node& node) -> Tensor {
      const Tensor& x = node.inputs[0];
      const Tensor products = matmul(unsqueeze(x, 0), node.inputs[1]);
      return sum(select(members(node.inputs[2], x.dim(0)), products, 0), {.axes = {0}});
    },
    .family = OpFamily::grouped_product,
    .flops = product_flops,
    // Rows are positional, as counts begin at the first row of the whole tensor. K cannot be split
    // into ranges whose results are summed: each of them needs the counts.
    .axes =
        [](const Node& node) {
          AxisMap map(node);
          const Shape &x = node.inputs[0].shape(), &w = node.inputs[1].shape();
          constexpr int result = AxisMap::of_result;
          map.relate(node, {.size = x[0], .positional = true}, {{result, 0}, {0, 0}});
          map.relate(node, {.size = w[2]}, {{result, 1}, {1, 2}});
          map.relate(node, {.size = x[1], .relation = Relation::whole}, {{0, 1}, {1, 1}});
          map.relate(node, {.size = w[0], .relation = Relation::whole}, {{1, 0}, {2, 0}});
          return map;
        },
    .narrows = true,
});
}  // namespace

Tensor grouped_matmul(Arg x, Arg w, Arg counts) {
  CallSite here(x.where);
  const Tensor rows = to_value(x, {});
  return make_node(grouped_matmul_def, {rows, to_value(w, rows), to_value(counts, {})});
}
}  // namespace weft
