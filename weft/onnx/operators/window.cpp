// Maps ONNX's pools. Pools that weft's own do not cover (other paddings, dilation, indices,
// integers) combine the elements at each place of the kernel.
#include <cmath>
#include <limits>

#include "weft/onnx/operators/operators.h"
#include "weft/onnx/operators/unrounded.h"
#include "weft/onnx/operators/windows.h"
#include "weft/tensor/wide.h"

namespace weft::onnx {
namespace {
using Tensors = std::vector<Tensor>;

// Returns whether weft's pools take x and these windows: floats, at most three axes, no dilation,
// and equal padding on both sides of at most half the kernel.
bool is_plain(const Tensor& x, const Windows& windows) {
  if (!is_float(x.dtype()) || !windows.is_dense() || windows.axes() > 3) return false;
  for (int i = 0; i < windows.axes(); ++i)
    if (2 * windows.low[i] > windows.kernel[i]) return false;
  return windows.is_symmetric();
}

// Pools x[N, C, W] as x[N, C, 1, W].
template <class Pool>
Tensor pooled(const Tensor& x, const Windows& windows, Pool pool) {
  PoolOptions options{.kernel = windows.kernel, .stride = windows.stride, .padding = windows.low};
  if (windows.axes() != 1) return pool(x, options);
  options.kernel = {1, windows.kernel[0]};
  options.stride = {1, windows.stride[0]};
  options.padding = {0, windows.low[0]};
  return squeeze(pool(unsqueeze(x, 2), options), 2);
}

// Returns the least number of a type, with which a maximum starts.
double least_of(DType dtype) {
  if (is_float(dtype)) return -infinity;
  return info(dtype).kind == NumberKind::with_sign ? -std::ldexp(1.0, whole_bits(dtype)) : 0;
}

// Returns the row-major place in x[N, C, ...] of the greatest element of each window.
Tensor places_of(const Tensor& x, const Windows& windows, const Tensor& which, bool column_major) {
  const Shape& result = which.shape();
  int64_t left = element_count(windows.kernel);
  std::vector<Tensor> coordinates;
  for (int i = 0; i < windows.axes(); ++i) {
    left /= windows.kernel[i];
    const Tensor in_kernel = remainder(floor_divide(which, left), windows.kernel[i]);
    coordinates.push_back(iota(result, i + 2) * windows.stride[i] +
                          in_kernel * windows.dilation[i] - windows.low[i]);
  }
  Tensor place = (iota(result, 0) * x.dim(1) + iota(result, 1)) * as_matrix(x, 2).dim(1);
  int64_t stride = 1;
  for (int k = 0; k < windows.axes(); ++k) {
    const int i = column_major ? k : windows.axes() - 1 - k;
    place = place + coordinates[static_cast<size_t>(i)] * stride;
    stride *= x.dim(i + 2);
  }
  return place;
}

Tensors max_pool_operator(const Call& call) {
  const DType dtype = call[0].dtype();
  const Tensor x = before_rounding(call[0]);
  const Windows windows = windows_of(call, x.shape());
  if (is_plain(x, windows) && !call.wants(1))
    return {narrow_to(pooled(x, windows,
                             [](const Tensor& images, const PoolOptions& options) {
                               return max_pool(images, options);
                             }),
                      dtype)};
  check_places(call, windows.kernel);
  const Tensor around = padded(x, windows, least_of(x.dtype()));
  Tensor greatest, which;
  int64_t index = 0;
  for_each_place(windows.kernel, [&](const Dims& place) {
    const Tensor here = tap(around, windows, place);
    if (index == 0) {
      greatest = here;
      which = zeros(here.shape(), DType::i64);
    } else {
      which = select(greater(here, greatest), index, which);
      greatest = maximum(greatest, here);
    }
    ++index;
  });
  greatest = narrow_to(greatest, dtype);
  if (!call.wants(1)) return {greatest};
  return {greatest, places_of(x, windows, which, call.integer("storage_order", 0) == 1)};
}

Tensor summed(const Tensor& around, const Windows& windows) {
  Tensor total;
  for_each_place(windows.kernel, [&](const Dims& place) {
    const Tensor here = tap(around, windows, place);
    total = total.defined() ? total + here : here;
  });
  return total;
}

Tensors average_pool(const Call& call) {
  const DType dtype = call[0].dtype();
  const Tensor x = terms_of(call[0]);
  const Windows windows = windows_of(call, x.shape());
  const bool counts_padding = call.flag("count_include_pad");
  if (is_plain(x, windows) && !call.flag("ceil_mode"))
    return {narrow_to(pooled(x, windows,
                             [&](const Tensor& images, PoolOptions options) {
                               options.count_include_pad = counts_padding;
                               return avg_pool(images, options);
                             }),
                      dtype)};
  check_places(call, windows.kernel);
  // Elements in the additional padding of ceil_mode never count in the mean.
  Windows given = windows;
  if (!call.text("auto_pad", "NOTSET").starts_with("SAME")) {
    const std::vector<int64_t> pads = call.integers("pads");
    const size_t after = pads.size() / 2;  // the second half is behind the axes
    for (int i = 0; i < windows.axes(); ++i)
      given.high[i] = pads.empty() ? 0 : pads[after + static_cast<size_t>(i)];
  }
  const Tensor wide = widen(x);
  Tensor ones = full(x.shape(), 1, wide.dtype());
  if (counts_padding) {
    Windows rest = windows;
    ones = full(padded(x, given, 0).shape(), 1, wide.dtype());
    for (int i = 0; i < windows.axes(); ++i) {
      rest.low[i] = 0;
      rest.high[i] = windows.high[i] - given.high[i];
    }
    ones = padded(ones, rest, 0);
  } else {
    ones = padded(ones, windows, 0);
  }
  const Tensor y = summed(padded(wide, windows, 0), windows) / summed(ones, windows);
  return {narrow_to(y, dtype)};
}

Tensors lp_pool(const Call& call) {
  const Windows windows = windows_of(call, call[0].shape());
  check_places(call, windows.kernel);
  const auto p = static_cast<double>(call.integer("p", 2));
  const Tensor x = widen(terms_of(call[0]));
  const Tensor powers = summed(padded(pow(abs(x), scalar(p, x.dtype())), windows, 0), windows);
  return {narrow_to(pow(powers, scalar(1 / p, x.dtype())), call[0].dtype())};
}

ReduceOptions over_space(const Tensor& x) {
  ReduceOptions over{.axes = {}, .keepdim = true};
  for (int axis = 2; axis < x.rank(); ++axis) over.axes.push_back(axis);
  return over;
}
Tensors global_average(const Call& call) {
  const Tensor x = terms_of(call[0]);
  return {narrow_to(x.rank() == 4 ? global_avg_pool(x) : mean(x, over_space(x)), call[0].dtype())};
}
Tensors global_lp(const Call& call) {
  const Tensor x = terms_of(call[0]);
  const Tensor y = norm(x, over_space(x), static_cast<double>(call.integer("p", 2)));
  return {narrow_to(y, call[0].dtype())};
}

const Operator window_rows[] = {
    {"AveragePool",
     "1 -> 1: auto_pad ceil_mode@10 count_include_pad dilations@19 kernel_shape pads strides",
     average_pool},
    {"GlobalAveragePool", "1 -> 1", global_average},
    {"GlobalLpPool", "1 -> 1: p", global_lp},
    {"GlobalMaxPool", "1 -> 1",
     [](const Call& call) -> Tensors {
       const Tensor greatest = max(before_rounding(call[0]), over_space(call[0]));
       return {narrow_to(greatest, call[0].dtype())};
     }},
    {"LpPool", "1 -> 1: auto_pad ceil_mode@18 dilations@18 kernel_shape p pads strides", lp_pool},
    {"MaxPool",
     "1 -> 1 2@8: auto_pad ceil_mode@10 dilations@10 kernel_shape pads storage_order@8 strides",
     max_pool_operator},
};
}  // namespace

std::span<const Operator> window_operators() { return window_rows; }

}  // namespace weft::onnx
