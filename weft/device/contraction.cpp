#include "weft/device/contraction.h"

#include <algorithm>
#include <initializer_list>

#include "weft/device/choice.h"

namespace weft {
namespace {

MatrixStrides matrix_strides(const Shape& shape, const Dims& strides) {
  MatrixStrides matrix;
  const int rank = shape.size();
  for (int i = 0; i < rank - 2; ++i) matrix.batch.push_back(shape[i] == 1 ? 0 : strides[i]);
  matrix.row = strides[rank - 2];
  matrix.column = strides[rank - 1];
  return matrix;
}

Dims without_axis(const Dims& dims, int axis) {
  Dims rest;
  for (int i = 0; i < dims.size(); ++i)
    if (i != axis) rest.push_back(dims[i]);
  return rest;
}
void drop_batch_axis(Contraction& task, int axis) {
  task.batch = without_axis(task.batch, axis);
  for (MatrixStrides* strides : {&task.a, &task.b, &task.result})
    strides->batch = without_axis(strides->batch, axis);
}

// Returns whether batch axis `axis` and the next can be merged in every matrix.
bool merges(const Contraction& task, int axis) {
  for (const MatrixStrides* strides : {&task.a, &task.b, &task.result})
    if (strides->batch[axis] != strides->batch[axis + 1] * task.batch[axis + 1]) return false;
  return true;
}

// Merges the innermost batch axis into the rows (a weight shared by the batch) or the columns.
bool absorb_innermost(Contraction& task) {
  const int last = task.batch.size() - 1;
  const int64_t extent = task.batch[last];
  const int64_t a = task.a.batch[last], b = task.b.batch[last], result = task.result.batch[last];
  if (b == 0 && (task.m == 1 || (a == task.a.row * task.m && result == task.result.row * task.m))) {
    if (task.m == 1) task.a.row = a, task.result.row = result;
    task.m *= extent;
  } else if (a == 0 && (task.n == 1 ||
                        (b == task.b.column * task.n && result == task.result.column * task.n))) {
    if (task.n == 1) task.b.column = b, task.result.column = result;
    task.n *= extent;
  } else {
    return false;
  }
  drop_batch_axis(task, last);
  return true;
}

// Along holds the strides of a matrix along one axis and across it.
struct Along {
  int64_t there = 0, across = 0;
};
int64_t padded_extent(int64_t extent, DType dtype, std::initializer_list<Along> matrices) {
  const int64_t padded = padded_row(extent, dtype);
  bool begins_rows = false;
  for (const Along& matrix : matrices) {
    if (matrix.there != 1) continue;
    if (matrix.across < padded) return extent;
    begins_rows = true;
  }
  return begins_rows ? padded : extent;
}

}  // namespace

Contraction padded(const Contraction& task) {
  if (!task.batch.empty() || std::min({task.m, task.n, task.k}) < 2) return task;
  const auto &a = task.a, &b = task.b, &result = task.result;
  Contraction more = task;
  more.m = padded_extent(task.m, task.a_dtype, {{a.row, a.column}, {result.row, result.column}});
  more.k = padded_extent(task.k, task.a_dtype, {{a.column, a.row}, {b.row, b.column}});
  more.n = padded_extent(task.n, task.dtype, {{b.column, b.row}, {result.column, result.row}});
  return more;
}

Contraction simplest(const Type& type, const Type& a, const Dims& a_strides, const Type& b,
                     const Dims& b_strides, const Dims& result_strides) {
  const int rank = type.shape.size();
  Contraction task{.a_dtype = a.dtype, .b_dtype = b.dtype, .dtype = type.dtype};
  for (int i = 0; i < rank - 2; ++i) task.batch.push_back(type.shape[i]);
  task.m = type.shape[rank - 2];
  task.n = type.shape[rank - 1];
  task.k = a.shape[rank - 1];
  task.a = matrix_strides(a.shape, a_strides);
  task.b = matrix_strides(b.shape, b_strides);
  task.result = matrix_strides(type.shape, result_strides);
  for (int axis = task.batch.size() - 1; axis >= 0; --axis)
    if (task.batch[axis] == 1) drop_batch_axis(task, axis);
  for (int axis = task.batch.size() - 2; axis >= 0; --axis)
    if (merges(task, axis)) {
      const int64_t outer = task.batch[axis];
      drop_batch_axis(task, axis);
      task.batch[axis] *= outer;
    }
  while (!task.batch.empty() && absorb_innermost(task)) {
  }
  return task;
}

}  // namespace weft
