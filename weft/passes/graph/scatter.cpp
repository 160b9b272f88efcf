// Rewrites the gradient of a large table of which few rows were read: the updates of those rows are
// summed in a small table, in the same order, and the gradient becomes a gather from the sums.
// Elementwise readers of the gradient then read the sums, and the full-size gradient never exists.
#include <cmath>

#include "weft/ir/op_def.h"
#include "weft/ops/ops.h"
#include "weft/passes/graph/algebra.h"
#include "weft/passes/graph/fold.h"

namespace weft {
namespace {
constexpr int64_t few = 2;  // least number of table rows per update

bool is_zero(const Value& value) {
  auto number = uniform_value(value);
  return number && *number == 0 && !std::signbit(*number);
}
}  // namespace

Value simplify_scatter(const Value& y, bool wrong) {
  if (y->op->kind != OpKind::gather || y->op->combine != ScalarOp::add || !is_zero(y->inputs[0]))
    return {};
  const Value &indices = y->inputs[1], &updates = y->inputs[2];
  const int64_t rows = y.dim(0), count = indices.elements();
  if (count == 0 || y.elements() == 0 || few * count > rows) return {};
  Value first = first_position(indices, rows), row = cast(indices, DType::i64);
  Value place = gather(first, indices);  // the index of the sum that each row is added to
  if (!wrong) place = select(logical_and(row >= 0, row < rows), place, -1);
  Shape shape = y.shape();
  shape[0] = count;
  return gather(scatter_add(zeros(shape, y.dtype()), place, updates), first);
}

}  // namespace weft
