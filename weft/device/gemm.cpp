#include "weft/device/gemm.h"

#include <algorithm>
#include <vector>

#include "weft/base/error.h"
#include "weft/ir/op_def.h"

namespace weft {
namespace {

// `rows` x `columns` with those strides; nullopt where neither lies densely.
std::optional<GemmMatrix> matrix_of(int64_t rows, int64_t columns, int64_t row, int64_t column) {
  if (rows == 1 && columns == 1) return GemmMatrix{1, 1, 1};
  if ((row == 1 || rows == 1) && (columns == 1 || column >= rows))
    return GemmMatrix{rows, columns, columns == 1 ? rows : column};
  if ((column == 1 || columns == 1) && (rows == 1 || row >= columns))
    return GemmMatrix{columns, rows, rows == 1 ? columns : row, true};
  return std::nullopt;
}

bool is_empty(const Contraction& task) {
  return element_count(task.batch) == 0 || task.m == 0 || task.n == 0 || task.k == 0;
}

// a and b of a product, which is all of a `matmul` and what `matmul_add` adds.
size_t first_factor(std::string_view op) { return op == "matmul_add" ? 1 : 0; }

Contraction task_of(const Bound& a, const Bound& b, const Bound& result) {
  return simplest(result.type, a.type, a.strides, b.type.shape, b.strides, result.strides);
}

}  // namespace

std::optional<Gemm> gemm_of(const Contraction& task) {
  const int axes = task.batch.size();
  if (axes > 1) return std::nullopt;
  auto b = matrix_of(task.n, task.k, task.b.column, task.b.row);
  auto a = matrix_of(task.k, task.m, task.a.column, task.a.row);
  auto result = matrix_of(task.n, task.m, task.result.column, task.result.row);
  if (!a || !b || !result || result->transposed) return std::nullopt;
  if (axes == 1) {
    b->batch_stride = task.b.batch[0];
    a->batch_stride = task.a.batch[0];
    result->batch_stride = task.result.batch[0];
    if (std::min({b->batch_stride, a->batch_stride, result->batch_stride}) < 0) return std::nullopt;
  }
  return Gemm{*b, *a, *result, axes == 1 ? task.batch[0] : 1};
}

std::optional<GemmChoice> choose_gemm(const Node& node, std::span<const Placement> operands) {
  const std::string_view op = node.op->name;
  if (op != "matmul" && op != "matmul_add") return std::nullopt;
  const size_t first = first_factor(op);
  const Value &a = node.inputs[first], &b = node.inputs[first + 1];
  if (!is_float(a.dtype())) return std::nullopt;
  // As they lie, or with copies of one or both, row by row.
  for (int copies = 0; copies < 4; ++copies) {
    const bool copy_a = (copies & 1) != 0, copy_b = (copies & 2) != 0;
    const Contraction task = simplest(
        node.type, a.type(), copy_a ? row_major_strides(a.shape()) : operands[first].strides,
        b.shape(), copy_b ? row_major_strides(b.shape()) : operands[first + 1].strides,
        row_major_strides(node.type.shape));
    if (is_empty(task)) return std::nullopt;
    const std::optional<Gemm> gemm = gemm_of(task);
    if (!gemm) continue;
    KernelChoice choice;
    choice.operand_order.resize(node.inputs.size());
    if (first == 1) choice.operand_order[0] = Dims::iota(node.type.shape.size());
    if (copy_a) choice.operand_order[first] = Dims::iota(a.rank());
    if (copy_b) choice.operand_order[first + 1] = Dims::iota(b.rank());
    if (first == 1) choice.in_place = 0;
    return GemmChoice{choice, task, *gemm};
  }
  return std::nullopt;
}

Value bias_of(std::span<const Value> body) {
  Value sum = body.front();
  if (!sum->is("matmul") || body.back().dtype() != sum.dtype()) return {};
  const Value& matrix = sum->inputs[1];
  const int64_t columns = matrix.dim(-1);
  if (columns < 2 || matrix.elements() != matrix.dim(-2) * columns) return {};
  Value bias;
  for (const Value& next : body.subspan(1)) {
    const std::vector<Value>& inputs = next->inputs;
    const bool casts = next->is("cast") && is_float(next.dtype()) &&
                       size_of(next.dtype()) >= size_of(body.front().dtype());
    if (!casts && (bias || !next->is("add"))) return {};
    const bool first = inputs[0].node() == sum.node();
    if (!first && (casts || inputs[1].node() != sum.node())) return {};
    if (!casts) bias = inputs[first ? 1 : 0];
    sum = next;
  }
  const std::vector<Value>& factors = body.front()->inputs;
  const bool factor =
      std::ranges::any_of(factors, [&](const Value& input) { return input.node() == bias.node(); });
  if (!bias || factor || !bias->is("broadcast") || bias->inputs[0].dim(-1) != columns) return {};
  const Node* vector = bias->inputs[0].node();  // of as many elements: they vary along columns
  while (vector->is("reshape")) vector = vector->inputs[0].node();
  const Shape& shape = vector->type.shape;
  const bool neighbours = vector->op->kind != OpKind::movement && !shape.empty() &&
                          vector->type.elements() == columns && shape[shape.size() - 1] == columns;
  return neighbours ? bias : Value();
}

GemmStep::GemmStep(const Step& step) {
  const std::vector<Bound> inputs = bind_inputs(step);
  const size_t first = first_factor(step.body.front()->op->name);
  a = inputs[first];
  b = inputs[first + 1];
  result = bind_result(step);
  if (first == 1) so_far = inputs[0];
  if (step.body.size() > 1) bias = inputs[2];
  task = task_of(a, b, result);
  const std::optional<Gemm> known = gemm_of(task);
  WEFT_ASSERT(known.has_value(), "{} lies as no library takes it", step.kernel);
  gemm = *known;
}

}  // namespace weft
