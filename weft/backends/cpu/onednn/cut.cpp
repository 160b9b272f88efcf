#include "weft/backends/cpu/onednn/cut.h"

#include <algorithm>
#include <utility>

#include "weft/base/numbers/rounding.h"

namespace weft::onednn {
namespace {
// Products with fewer multiply-adds take less time than waking a thread.
constexpr int64_t worth_cutting = 1 << 16;
// Boundaries keep vectors, cache lines and the blocks of oneDNN whole.
constexpr int64_t row_unit = 16, column_unit = 64;

std::vector<Range> ranges(int64_t extent, int64_t unit, int threads) {
  const int64_t units = ceil_div(extent, unit), parts = std::clamp<int64_t>(units, 1, threads);
  std::vector<Range> all;
  all.reserve(static_cast<size_t>(parts));
  for (int64_t part = 0; part < parts; ++part)
    all.push_back({std::min(extent, units * part / parts * unit),
                   std::min(extent, units * (part + 1) / parts * unit)});
  return all;
}

// Restricts a tensor to a range of an axis and returns the offset of that range. An operand that is
// broadcast along the axis stays whole.
int64_t cut_to(Tensor& tensor, int axis, const Range& range, int64_t whole) {
  if (tensor.shape[axis] != whole) return 0;
  tensor.shape[axis] = range.size();
  return range.begin * tensor.strides[axis];
}

int64_t& begin_of(Piece& piece, Tensor Problem::* tensor) {
  return piece.begin[tensor == &Problem::a ? 0 : tensor == &Problem::b ? 1 : 2];
}

// Returns the axis along which a product is divided: the first of the batch, else rows, or columns
// where there are few rows. A product that accumulates cannot be divided by columns.
int shared_axis(const Problem& problem, int threads) {
  const Shape& shape = problem.result.shape;
  const int row = shape.size() - 2, column = shape.size() - 1;
  for (int i = 0; i < row; ++i)
    if (shape[i] > 1) return i;
  const bool few_rows = shape[row] < row_unit * threads && shape[column] > shape[row];
  return few_rows && !problem.accumulate ? column : row;
}

// oneDNN takes matrices that are dense, by rows or by columns, so a part that is not dense is
// copied. A part of one row is dense.
void copy_unless_dense(Tensor& part) {
  const int row = part.shape.size() - 2, column = part.shape.size() - 1;
  if (part.shape[row] == 1 && part.strides[column] == 1) part.strides[row] = part.shape[column];
  const int64_t outer = std::max(part.strides[row], part.strides[column]);
  const int64_t inner = part.strides[column] == 1 ? part.shape[column] : part.shape[row];
  part.free |= part.shape[row] > 1 && part.shape[column] > 1 && outer != inner;
}

std::vector<Piece> cut_matmul(const Problem& problem, int threads) {
  const Shape& shape = problem.result.shape;
  const int row = shape.size() - 2, column = shape.size() - 1;
  int64_t products = problem.a.shape[column];
  for (int64_t extent : shape) products *= extent;
  if (products < worth_cutting || threads == 1) return {{problem}};

  const int axis = shared_axis(problem, threads);
  const int64_t unit = axis == row ? row_unit : axis == column ? column_unit : 1;
  std::vector<Piece> pieces;
  for (const Range& range : ranges(shape[axis], unit, threads)) {
    Piece piece{problem};
    const std::pair<Tensor Problem::*, bool> operands[] = {
        {&Problem::a, axis != column}, {&Problem::b, axis != row}, {&Problem::result, true}};
    for (const auto& [operand, cut] : operands) {
      if (!cut) continue;
      Tensor& part = piece.problem.*operand;
      begin_of(piece, operand) = cut_to(part, axis, range, shape[axis]);
      if (axis >= row) copy_unless_dense(part);
    }
    if (problem.accumulate && piece.problem.result.free)
      return {{problem}};  // a copy lacks the sums so far
    pieces.push_back(piece);
  }
  return pieces;
}

// Activations names the tensors of a problem that are x (or its gradient), the input of the
// convolution, and y (or its gradient), its output, whichever direction is computed. Both are
// [images, channels, rows, columns].
struct Activations {
  Tensor Problem::* x;
  Tensor Problem::* y;
};
Activations activations(Operation operation) {
  if (operation == Operation::conv_input_gradient) return {&Problem::result, &Problem::a};
  if (operation == Operation::conv_weight_gradient) return {&Problem::a, &Problem::b};
  return {&Problem::a, &Problem::result};
}

int64_t& per_image_of(Piece& piece, Tensor Problem::* tensor) {
  return piece.per_image[tensor == &Problem::a ? 0 : tensor == &Problem::b ? 1 : 2];
}

std::vector<Piece> cut_images(const Problem& problem, int threads) {
  const auto [x, y] = activations(problem.operation);
  const int64_t images = (problem.*x).shape[0];
  std::vector<Piece> pieces;
  for (const Range& range : ranges(images, 1, threads)) {
    Piece piece{problem};
    for (Tensor Problem::* tensor : {x, y})
      begin_of(piece, tensor) = cut_to(piece.problem.*tensor, 0, range, images);
    pieces.push_back(piece);
  }
  return pieces;
}

constexpr int row_axis = 2;

const Tensor& weight_of(const Problem& problem) {
  return problem.operation == Operation::conv_weight_gradient ? problem.result : problem.b;
}
// Returns the distance from the first row that a row of y reads to the last.
int64_t reach_of(const Problem& problem) {
  const Shape& weight = weight_of(problem).shape;
  return (weight[weight.size() - 2] - 1) * (problem.dilation[0] + 1);
}

struct Rows {
  Range x, y;
};
// Returns the rows of x that these rows of y are computed from; for an input gradient, where the
// stride is 1, the rows of y that contribute to these rows of x.
Rows rows_of(const Problem& problem, const Range& made) {
  const auto [x, y] = activations(problem.operation);
  const int64_t stride = problem.stride[0], padding = problem.padding[0], reach = reach_of(problem);
  auto within = [](int64_t begin, int64_t end, const Tensor& tensor) {
    const int64_t rows = tensor.shape[row_axis];
    return Range{std::clamp<int64_t>(begin, 0, rows), std::clamp<int64_t>(end, 0, rows)};
  };
  if (problem.operation == Operation::conv_input_gradient)
    return {made, within(made.begin + padding - reach, made.end + padding, problem.*y)};
  return {within(made.begin * stride - padding, (made.end - 1) * stride - padding + reach + 1,
                 problem.*x),
          made};
}

// Returns nothing where a range of rows reads only padding.
std::vector<Piece> cut_by_rows(const Problem& problem, int threads) {
  const auto [x, y] = activations(problem.operation);
  const bool backward = problem.operation == Operation::conv_input_gradient;
  std::vector<Piece> pieces;
  for (const Range& made : ranges((problem.*(backward ? x : y)).shape[row_axis], 1, threads)) {
    const std::optional<Piece> piece = cut_rows(problem, made);
    if (!piece) return {};
    pieces.push_back(*piece);
  }
  return pieces;
}

std::vector<Piece> cut_conv(const Problem& problem, int threads) {
  const auto [x, y] = activations(problem.operation);
  int64_t products = element_count((problem.*y).shape) * element_count(weight_of(problem).shape) /
                     (problem.*y).shape[1];
  if (products < worth_cutting) return {{problem}};
  const int64_t images = (problem.*x).shape[0];
  const bool even = images % threads == 0 || images >= 8 * threads;
  const bool adds = problem.operation == Operation::conv_weight_gradient && images > 1;
  const bool apart = problem.operation == Operation::conv_input_gradient && problem.stride[0] > 1;
  if (!even && !adds && !apart)
    if (std::vector<Piece> pieces = cut_by_rows(problem, threads); !pieces.empty()) return pieces;
  return cut_images(problem, threads);
}
}  // namespace

std::vector<Piece> cut(const Problem& problem, int threads) {
  return problem.operation == Operation::matmul ? cut_matmul(problem, threads)
                                                : cut_conv(problem, threads);
}

Range rows_read(const Problem& conv, const Range& made) { return rows_of(conv, made).x; }

std::optional<Piece> cut_rows(const Problem& conv, const Range& made) {
  const auto [x, y] = activations(conv.operation);
  const Rows rows = rows_of(conv, made);
  if (rows.x.size() == 0 || rows.y.size() == 0) return std::nullopt;
  Piece piece{conv};
  const int64_t first = rows.y.begin * conv.stride[0] - conv.padding[0];
  const int64_t last = (rows.y.end - 1) * conv.stride[0] - conv.padding[0] + reach_of(conv);
  piece.problem.padding[0] = rows.x.begin - first;
  piece.problem.padding_after[0] = last + 1 - rows.x.end;
  for (const auto& [tensor, range] : {std::pair{x, rows.x}, std::pair{y, rows.y}}) {
    Tensor& part = piece.problem.*tensor;
    begin_of(piece, tensor) = cut_to(part, row_axis, range, part.shape[row_axis]);
    piece.images = part.shape[0];
    per_image_of(piece, tensor) = part.strides[0];
    part.shape[0] = 1;
    part.strides[0] = part.shape[1] * part.shape[2] * part.shape[3];
  }
  return piece;
}
}  // namespace weft::onednn
