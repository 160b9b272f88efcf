// Reads the attributes that convolutions and pools share. Internal to weft/onnx.
#pragma once

#include "weft/onnx/net/call.h"

namespace weft::onnx {

// Windows lie along the spatial axes: all axes of x[N, C, ...] after the second.
struct Windows {
  Dims kernel, stride, dilation, low, high;  // low, high: padding before and after each axis

  int axes() const { return kernel.size(); }
  bool is_symmetric() const { return low == high; }
  bool is_dense() const;  // without dilation
  // Returns the elements that a window spans along an axis.
  int64_t span(int axis) const { return dilation[axis] * (kernel[axis] - 1) + 1; }
  // Returns how many windows there are along an axis of `extent` elements.
  int64_t count(int axis, int64_t extent) const {
    return (extent + low[axis] + high[axis] - span(axis)) / stride[axis] + 1;
  }
};

// Returns the windows of a node over x[N, C, ...]. Padding follows auto_pad; ceil_mode becomes more
// padding at the end. `kernel` is the weight's, for a node that does not give its own.
Windows windows_of(const Call& call, const Shape& x, const Dims& kernel = {});

// Pads the spatial axes as the windows do.
Tensor padded(const Tensor& x, const Windows& windows, double value);
// Returns the element of every window at one place of the kernel, in the shape of the pooled
// result. x is padded already.
Tensor tap(const Tensor& padded, const Windows& windows, const Dims& place);
// Refuses a kernel of more places than a graph has operations for.
void check_places(const Call& call, const Dims& kernel);
// Calls `visit` for each place of the kernel, row by row.
template <class Visit>
void for_each_place(const Dims& kernel, Visit visit) {
  Dims place = Dims::filled(kernel.size(), 0);
  while (true) {
    visit(static_cast<const Dims&>(place));
    int axis = kernel.size() - 1;
    while (axis >= 0 && ++place[axis] == kernel[axis]) place[axis--] = 0;
    if (axis < 0) return;
  }
}

}  // namespace weft::onnx
