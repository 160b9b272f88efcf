// Defines resizing, one spatial axis at a time.
#include <algorithm>
#include <cmath>
#include <vector>

#include "weft/ops/apply.h"
#include "weft/ops/wide.h"

namespace weft {
namespace {
Tensor whole_numbers(const std::vector<double>& list) {
  return constant(list, {static_cast<int64_t>(list.size())}, DType::i64);
}

// Takes element floor(i * from / to) as element i, by views where one extent divides the other.
Tensor nearest(const Tensor& x, int axis, int64_t to) {
  const int64_t from = x.shape()[axis];
  if (to % from == 0) return repeat(x, to / from, axis);
  if (from % to == 0) return slice(x, axis, 0, from, from / to);
  std::vector<double> places(static_cast<size_t>(to));
  for (size_t i = 0; i < places.size(); ++i) {
    const int64_t place = static_cast<int64_t>(i) * from / to;
    places[i] = static_cast<double>(place);
  }
  return gather(x, whole_numbers(places), axis);
}

// Interpolates element i between its two neighbours in x, or takes the first or last. Centres of
// the first and last elements coincide, or without align_corners their outer edges, as in PyTorch.
Tensor between(const Tensor& x, int axis, int64_t to, bool align_corners) {
  const int64_t from = x.shape()[axis];
  if (from == to) return x;
  std::vector<double> left, right, share;
  for (int64_t i = 0; i < to; ++i) {
    const auto place = static_cast<double>(i), in = static_cast<double>(from - 1);
    const double scale = static_cast<double>(from) / static_cast<double>(to);
    double at = std::max(0.0, (place + 0.5) * scale - 0.5);
    if (align_corners) at = to == 1 ? 0 : place * in / static_cast<double>(to - 1);
    left.push_back(std::min(std::floor(at), in));
    right.push_back(std::min(left.back() + 1, in));
    share.push_back(at - left.back());
  }
  Shape along = Dims::filled(x.rank(), 1);
  along[axis] = to;
  const Tensor a = widen(gather(x, whole_numbers(left), axis));
  const Tensor b = widen(gather(x, whole_numbers(right), axis));
  const Tensor w = constant(share, along, a.dtype());
  return narrow_to(a * (1 - w) + b * w, x.dtype());
}
}  // namespace

Tensor interpolate(Arg x, const InterpolateOptions& options) {
  CallSite here(x.where);
  const int axes = x.value.rank() - 2;
  WEFT_CHECK(axes >= 1 && axes <= 3, "[interpolate] takes [N, C, spatial..]. Got {}.",
             to_string(x.value.type()));
  WEFT_CHECK(options.size.size() == axes, "[interpolate] one size per spatial axis of {}. Got {}.",
             to_string(x.value.shape()), to_string(options.size));
  const bool linear = options.mode == Interpolation::linear;
  WEFT_CHECK(!linear || is_float(x.value.dtype()),
             "[interpolate] linear needs floating point. Got {}. Hint: cast it first.",
             name(x.value.dtype()));
  Tensor y = x.value;
  for (int axis = 2; axis < y.rank(); ++axis) {
    const int64_t to = options.size[axis - 2];
    WEFT_CHECK(to > 0 && y.shape()[axis] > 0,
               "[interpolate] extents must be positive. Got {} to {} along axis {}.",
               y.shape()[axis], to, axis);
    y = linear ? between(y, axis, to, options.align_corners) : nearest(y, axis, to);
  }
  return y;
}
}  // namespace weft
