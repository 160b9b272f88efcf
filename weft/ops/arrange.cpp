// Defines movement operations that are expressions of other movement operations.
#include <algorithm>

#include "weft/ops/apply.h"

namespace weft {
namespace {
// Maps [.., n, ..] to [.., times n, ..]: broadcasts along a new axis of extent `times` at `place`
// and merges it with its neighbour.
Tensor multiplied(const Tensor& x, int64_t times, int axis, int place) {
  if (times == 1) return x;
  const Tensor raised = unsqueeze(x, place);
  Shape shape = raised.shape();
  shape[place] = times;
  return flatten(broadcast_to(raised, shape), axis, axis + 1);
}

Tensor triangle(const Arg& x, int64_t diagonal, bool lower, std::string_view op) {
  CallSite here(x.where, op);
  const Shape& shape = x.value.shape();
  WEFT_CHECK(shape.size() >= 2, "[{}] needs a matrix [.., M, N]. Got {}.", op, to_string(shape));
  const Tensor above = iota(shape, -1) - iota(shape, -2);  // diagonal of each element
  return select(lower ? above <= diagonal : above >= diagonal, x.value, zeros_like(x));
}
}  // namespace

Tensor reflect_pad(Arg x, const Dims& low, const Dims& high) {
  CallSite here(x.where);
  const Shape& shape = x.value.shape();
  WEFT_CHECK(low.size() == shape.size() && high.size() == shape.size(),
             "[reflect_pad] one pair per axis. Got {} and {} for rank {}.", to_string(low),
             to_string(high), shape.size());
  Tensor y = x.value;
  for (int axis = 0; axis < shape.size(); ++axis) {
    const int64_t before = low[axis], after = high[axis], extent = shape[axis];
    if (before == 0 && after == 0) continue;
    WEFT_CHECK(before >= 0 && after >= 0 && before < extent && after < extent,
               "[reflect_pad] amounts must be at least 0 and below the extent. Got {} and {} for "
               "axis {} of extent {}.",
               before, after, axis, extent);
    const Tensor first = flip(slice(y, axis, 1, 1 + before), {axis});
    const Tensor last = flip(slice(y, axis, extent - 1 - after, extent - 1), {axis});
    y = concat({first, y, last}, axis);
  }
  return y;
}

Tensor tile(Arg x, const Dims& counts) {
  CallSite here(x.where);
  const int rank = std::max(x.value.rank(), counts.size());
  Shape shape = Dims::filled(rank - x.value.rank(), 1);
  for (int64_t extent : x.value.shape()) shape.push_back(extent);
  Tensor y = reshape(x, shape);
  for (int i = 0; i < counts.size(); ++i) {
    WEFT_CHECK(counts[i] >= 0, "[tile] counts must not be negative. Got {}.", to_string(counts));
    const int axis = rank - counts.size() + i;
    y = multiplied(y, counts[i], axis, axis);
  }
  return y;
}

Tensor repeat(Arg x, int64_t count, int axis) {
  CallSite here(x.where);
  WEFT_CHECK(count >= 0, "[repeat] the count must not be negative. Got {}.", count);
  const int at = normalize_axis(axis, x.value.rank(), "repeat");
  return multiplied(x.value, count, at, at + 1);
}

Tensor tril(Arg x, int64_t diagonal) { return triangle(x, diagonal, true, "tril"); }
Tensor triu(Arg x, int64_t diagonal) { return triangle(x, diagonal, false, "triu"); }
}  // namespace weft
