#include "weft/device/gemm.h"

#include <algorithm>
#include <tuple>
#include <vector>

#include "weft/base/error.h"
#include "weft/ir/op_def.h"

namespace weft {
namespace {

// Describes a `rows` x `columns` matrix of these strides; nullopt where neither axis is contiguous.
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

// Returns the index of the product's operand a: the sums so far may precede the two factors.
size_t first_factor(const Node& product) { return product.inputs.size() - 2; }

Contraction task_of(const Bound& a, const Bound& b, const Bound& result) {
  return simplest(result.type, a.type, a.strides, b.type, b.strides, result.strides);
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
  if (node.op->family != OpFamily::product) return std::nullopt;
  const size_t first = first_factor(node);
  const Value &a = node.inputs[first], &b = node.inputs[first + 1];
  if (!is_float(a.dtype()) || info(a.dtype()).stored_only || a.dtype() != b.dtype())
    return std::nullopt;
  // The operands are tried in place first, then with row-major copies of one or both.
  for (int copies = 0; copies < 4; ++copies) {
    const bool copy_a = (copies & 1) != 0, copy_b = (copies & 2) != 0;
    const Contraction task = simplest(
        node.type, a.type(), copy_a ? row_major_strides(a.shape()) : operands[first].strides,
        b.type(), copy_b ? row_major_strides(b.shape()) : operands[first + 1].strides,
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

namespace {
// Returns the strides with rows padded by padded_row where the rows are contiguous, else `strides`.
Dims with_padded_rows(const Value& value, const Dims& strides) {
  const Dims order = physical_order(value.shape(), strides);
  const auto row = static_cast<int>(order.back());
  Shape room = value.shape();
  room[row] = padded_row(room[row], value.dtype());
  const Dims padded = dense_strides(room, order);
  const auto next = static_cast<int>(order[order.size() - 2]);
  return strides[row] == 1 && strides[next] < padded[next] ? padded : strides;
}
int64_t reach(int64_t rows, int64_t columns, const MatrixStrides& strides) {
  return (rows - 1) * strides.row + (columns - 1) * strides.column + 1;
}
}  // namespace

std::optional<GemmRooms> rooms_of(const Node& node, std::span<const Placement> operands,
                                  const KernelChoice& choice) {
  const size_t first = first_factor(node);
  const Value &a = node.inputs[first], &b = node.inputs[first + 1];
  auto strides_of = [&](const Value& value, size_t i) {
    const Dims& order = choice.operand_order[i];
    return order.empty() ? operands[i].strides : dense_strides(value.shape(), order);
  };
  GemmRooms rooms;
  const auto place = [](Room& room, const Value& value, const Dims& strides) {
    const Dims padded = with_padded_rows(value, strides);
    if (padded != strides) room.strides = padded;
    return padded;
  };
  const Dims a_strides = place(rooms.a, a, strides_of(a, first));
  const Dims b_strides = place(rooms.b, b, strides_of(b, first + 1));
  Shape rows = node.type.shape;
  int64_t& row = rows[rows.size() - 1];
  if (choice.padded_rows) row = padded_row(row, node.type.dtype);
  rooms.result.strides = row_major_strides(rows);
  const Contraction task =
      simplest(node.type, a.type(), a_strides, b.type(), b_strides, rooms.result.strides);
  rooms.task = padded(task);
  const auto& [m, n, k] = std::tie(rooms.task.m, rooms.task.n, rooms.task.k);
  const bool more_m = m > task.m, more_n = n > task.n, more_k = k > task.k;
  if ((!more_m && !more_n && !more_k) || !gemm_of(rooms.task)) return std::nullopt;
  if (more_m || more_k) rooms.a.elements = reach(m, k, task.a);
  if (more_k || more_n) rooms.b.elements = reach(k, n, task.b);
  if (more_m || more_n) rooms.result.elements = reach(m, n, task.result);
  return rooms;
}

namespace {
bool holds(std::span<const Value> values, const Value& value) {
  return std::ranges::find(values, value.node(), &Value::node) != values.end();
}

// Sums follows the chain of values from the product through casts and the addition of a bias, none
// of which rounds to a narrower type.
struct Sums {
  explicit Sums(std::span<const Value> body) : values{body.front()} {
    for (Value next; (next = only_reader(body)).defined();) {
      const std::vector<Value>& inputs = next->inputs;
      const DType dtype = values[0].dtype();
      if (next->op->scalar == ScalarOp::add && !bias.defined()) {
        const Value& other = inputs[inputs[0].node() == values.back().node() ? 1 : 0];
        if (!is_bias(other, values[0].dim(-1)) || holds(values[0]->inputs, other)) return;
        bias = other;
        biased = values.size();
      } else if (next->op->scalar != ScalarOp::cast || !is_float(next.dtype()) ||
                 (next.dtype() != dtype && size_of(next.dtype()) <= size_of(dtype))) {
        return;
      }
      values.push_back(next);
    }
  }

  std::vector<Value> values;
  Value bias;
  size_t biased = 0;  // index of the first value that includes the bias

 private:
  Value only_reader(std::span<const Value> body) const {
    Value reader;
    for (const Value& node : body) {
      if (!holds(node->inputs, values.back())) continue;
      if (reader.defined()) return {};
      reader = node;
    }
    return reader;
  }
};

// Returns the node below all casts of a value.
const Node* before_casts(const Value& value) {
  const Node* node = value.node();
  while (node->op->scalar == ScalarOp::cast) node = node->inputs[0].node();
  return node;
}
// Returns the composite that a value, or the value it casts, decomposes; null: none is known.
const Node* composite_of(const Value& value) {
  const Node* node = value.node();
  while (!node->annotations.composite.defined() && node->op->scalar == ScalarOp::cast)
    node = node->inputs[0].node();
  return node->annotations.composite.node();
}
// Returns whether the composite's operands are `sum`, or `at` and `sum`, up to casts.
bool is_of(const Node& composite, const Value& sum, const Value& at) {
  const std::vector<Value>& operands = composite.inputs;
  if (operands.size() != (at.defined() ? 2U : 1U)) return false;
  return before_casts(operands.back()) == before_casts(sum) &&
         (!at.defined() || before_casts(operands[0]) == before_casts(at));
}

bool is_transposed(const Value& matrix) {
  if (matrix->op->view == nullptr || matrix->inputs[0].rank() != 2) return false;
  const Placement rows{-1, 0, row_major_strides(matrix->inputs[0].shape())};
  const std::optional<Placement> at = matrix->op->view(*matrix.node(), rows);
  return at && at->offset == 0 && at->strides == Dims{1, matrix.dim(0)};
}

// Returns whether `value` is the float32 sum over the rows of the matrix whose transpose is `a`.
bool sums_columns_of(const Value& value, const Value& a) {
  if (value->op->kind != OpKind::reduce || value->op->combine != ScalarOp::add ||
      value.dtype() != DType::f32)
    return false;
  const Value& summed = value->inputs[0];
  if (!is_transposed(a)) return false;
  return summed.dim(-1) == a.dim(0) && value->attrs.dims("axes") == Dims::iota(summed.rank() - 1) &&
         before_reshapes(summed->op->scalar == ScalarOp::cast ? summed->inputs[0] : summed) ==
             before_reshapes(a->inputs[0]);
}
}  // namespace

bool is_bias(const Value& value, int64_t columns) {
  if (!is_broadcast(*value.node()) || value->inputs[0].dim(-1) != columns) return false;
  const Node* vector = before_reshapes(value->inputs[0]);  // so it varies along the columns
  const Shape& shape = vector->type.shape;
  return vector->op->kind != OpKind::movement && !shape.empty() &&
         vector->type.elements() == columns && shape[shape.size() - 1] == columns;
}

std::optional<GemmEpilogue> epilogue_of(std::span<const Value> body,
                                        std::span<const Value> results) {
  const Value& product = body.front();
  if (!is_matrix_product(*product.node())) return std::nullopt;
  const Value& matrix = product->inputs[1];
  const int64_t columns = matrix.dim(-1);
  if (columns < 2 || matrix.elements() != matrix.dim(-2) * columns) return std::nullopt;

  const Sums sums(body);
  const Value &sum = sums.values.back(), &made = results.back();
  std::vector<Value> rest, read;  // rest: nodes after the sums; read: their inputs from outside
  for (const Value& node : body)
    if (!holds(sums.values, node) && node->op->leaf != LeafKind::scalar) rest.push_back(node);
  for (const Value& node : rest)
    for (const Value& input : node->inputs)
      if (!holds(body, input) && !holds(read, input)) read.push_back(input);

  const auto narrows = [&](const Value& node) {
    return node->op->scalar == ScalarOp::cast && node.dtype() != product.dtype() &&
           (!is_float(node.dtype()) || size_of(node.dtype()) <= size_of(product.dtype()));
  };
  if (std::ranges::any_of(rest, narrows)) return std::nullopt;

  GemmEpilogue epilogue{.bias = sums.bias};
  const bool alone = results.size() == 1, of_its_type = made.dtype() == product.dtype();
  if (rest.empty()) {
    const bool adds = alone && of_its_type && sums.bias.defined() && made.node() == sum.node();
    return adds ? std::optional(epilogue) : std::nullopt;
  }
  if (sums_columns_of(made, product->inputs[0])) {
    epilogue.a_sums = made;
    const bool beside = results.size() == 2 && results[0].node() == product.node() &&
                        sums.values.size() == 1 && of_its_type &&
                        rest.size() == (made->inputs[0]->op->scalar == ScalarOp::cast ? 2 : 1);
    return beside ? std::optional(epilogue) : std::nullopt;
  }
  if (!of_its_type || results.size() > 2 || read.size() > 1) return std::nullopt;
  if (!read.empty()) epilogue.at = read[0];
  if (!alone) epilogue.sum = results[0];
  const auto stored = std::ranges::find(sums.values, results[0].node(), &Value::node);
  const bool stores_sum = stored - sums.values.begin() >= static_cast<ptrdiff_t>(sums.biased) &&
                          stored != sums.values.end() && results[0].dtype() == product.dtype();
  const bool fits = !epilogue.at.defined()
                        ? alone || stores_sum
                        : alone && !sums.bias.defined() && epilogue.at.type() == product.type() &&
                              !holds(product->inputs, epilogue.at);
  const Node* composite = composite_of(made);
  if (!fits || composite == nullptr || !is_of(*composite, sum, epilogue.at)) return std::nullopt;
  epilogue.function = composite->op;
  return epilogue;
}

GemmLaunch::GemmLaunch(const Launch& launch) {
  const std::vector<Bound> inputs = bind_inputs(launch);
  const size_t first = first_factor(*launch.body.front().node());
  a = inputs[first];
  b = inputs[first + 1];
  if (first == 1) so_far = inputs[0];
  if (launch.body.size() == 1) {
    result = bind_result(launch);
  } else {
    std::vector<Value> results;
    results.reserve(launch.results.size());
    for (const Access& access : launch.results) results.push_back(access.value);
    const std::optional<GemmEpilogue> epilogue = epilogue_of(launch.body, results);
    WEFT_ASSERT(epilogue.has_value(), "no library has an epilogue for {}", launch.kernel);
    function = epilogue->function;
    result = bind_result(launch, epilogue->a_sums.defined() ? results.front() : results.back());
    if (epilogue->bias.defined()) bias = bind_operand(launch, epilogue->bias);
    if (epilogue->sum.defined()) sum = bind_result(launch, epilogue->sum);
    if (epilogue->at.defined()) at = bind_operand(launch, epilogue->at);
    if (epilogue->a_sums.defined()) a_sums = bind_result(launch, epilogue->a_sums);
  }
  task = task_of(a, b, result);
  n = task.n, k = task.k;
  if (launch.padded) task = padded(task);
  const std::optional<Gemm> known = gemm_of(task);
  WEFT_ASSERT(known.has_value(), "no library supports the layout of {}", launch.kernel);
  gemm = *known;
}

}  // namespace weft
