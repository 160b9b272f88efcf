#include "weft/onnx/operators/windows.h"

#include <algorithm>

namespace weft::onnx {
namespace {
Dims dims_of(const Call& call, const char* attribute, const Dims& otherwise) {
  if (!call.has(attribute)) return otherwise;
  const std::vector<int64_t> given = call.integers(attribute);
  if (std::ssize(given) != otherwise.size())
    call.refuse("attribute '{}' has {} numbers for {} spatial axes", attribute, given.size(),
                otherwise.size());
  return Dims(given);
}

constexpr int64_t most = int64_t{1} << 31;  // limit for each number: products of two fit int64

void check_least(const Call& call, const Dims& dims, int64_t least, const char* what) {
  if (std::ranges::any_of(dims, [&](int64_t number) { return number < least || number > most; }))
    call.refuse("its {} is from {} to {}. Got {}", what, least, most, to_string(dims));
}

// Pads so that there is a window for every `stride` elements; the odd element is before or after.
void pad_same(Windows& windows, const Shape& x, bool upper) {
  for (int i = 0; i < windows.axes(); ++i) {
    const int64_t extent = x[i + 2], stride = windows.stride[i];
    const int64_t count = (extent + stride - 1) / stride;
    const int64_t total = std::max<int64_t>((count - 1) * stride + windows.span(i) - extent, 0);
    windows.low[i] = upper ? total / 2 : total - total / 2;
    windows.high[i] = total - windows.low[i];
  }
}

// Adds padding at the end so that elements that the last whole window leaves over get a window of
// their own, unless that window would start in the padding at the end.
void round_up_extents(Windows& windows, const Shape& x) {
  for (int i = 0; i < windows.axes(); ++i) {
    const int64_t stride = windows.stride[i], extent = x[i + 2];
    const int64_t room = extent + windows.low[i] + windows.high[i] - windows.span(i);
    const int64_t rest = room % stride;
    if (room < 0 || rest == 0) continue;
    const int64_t start = (room / stride + 1) * stride;  // of the additional window
    if (start < extent + windows.low[i]) windows.high[i] += stride - rest;
  }
}
}  // namespace

bool Windows::is_dense() const {
  return std::ranges::all_of(dilation, [](int64_t step) { return step == 1; });
}

Windows windows_of(const Call& call, const Shape& x, const Dims& kernel) {
  const int axes = x.size() - 2;
  if (axes < 1) call.refuse("its operand has spatial axes after two others. Got {}", to_string(x));
  Windows windows;
  windows.kernel = kernel.empty() ? Dims::filled(axes, 1) : kernel;
  if (kernel.empty() && !call.has("kernel_shape")) call.refuse("it lacks attribute 'kernel_shape'");
  if (windows.kernel.size() != axes)
    call.refuse("its kernel has {} axes for {} spatial ones", windows.kernel.size(), axes);
  windows.kernel = dims_of(call, "kernel_shape", windows.kernel);
  if (!kernel.empty() && !(windows.kernel == kernel))
    call.refuse("its kernel_shape is {} and its weight's {}", to_string(windows.kernel),
                to_string(kernel));
  windows.stride = dims_of(call, "strides", Dims::filled(axes, 1));
  windows.dilation = dims_of(call, "dilations", Dims::filled(axes, 1));
  check_least(call, windows.kernel, 1, "kernel");
  check_least(call, windows.stride, 1, "stride");
  check_least(call, windows.dilation, 1, "dilation");
  windows.low = windows.high = Dims::filled(axes, 0);
  const std::string automatic = call.text("auto_pad", "NOTSET");
  if (automatic == "SAME_UPPER" || automatic == "SAME_LOWER") {
    pad_same(windows, x, automatic == "SAME_UPPER");
  } else if (automatic == "NOTSET" && call.has("pads")) {
    const std::vector<int64_t> pads = call.integers("pads");
    if (std::ssize(pads) != 2 * axes)
      call.refuse("attribute 'pads' has {} numbers for {} spatial axes", pads.size(), axes);
    for (int i = 0; i < axes; ++i) {
      windows.low[i] = pads[static_cast<size_t>(i)];
      windows.high[i] = pads[static_cast<size_t>(i) + pads.size() / 2];
    }
    check_least(call, windows.low, 0, "padding");
    check_least(call, windows.high, 0, "padding");
  } else if (automatic != "NOTSET" && automatic != "VALID") {
    call.refuse("its auto_pad is '{}', which weft does not know", automatic);
  }
  if (call.flag("ceil_mode")) round_up_extents(windows, x);
  for (int i = 0; i < axes; ++i)
    if (x[i + 2] + windows.low[i] + windows.high[i] < windows.span(i))
      call.refuse("its windows of {} exceed the padded axis of {}", windows.span(i),
                  x[i + 2] + windows.low[i] + windows.high[i]);
  return windows;
}

void check_places(const Call& call, const Dims& kernel) {
  constexpr int64_t most_places = int64_t{1} << 16;
  int64_t places = 1;
  for (const int64_t extent : kernel)
    if (__builtin_mul_overflow(places, extent, &places) || places > most_places)
      call.refuse("its kernel has more than {} places. Got {}", most_places, to_string(kernel));
}

Tensor padded(const Tensor& x, const Windows& windows, double value) {
  Dims low = Dims::filled(x.rank(), 0), high = low;
  for (int i = 0; i < windows.axes(); ++i) {
    low[i + 2] = windows.low[i];
    high[i + 2] = windows.high[i];
  }
  if (low == Dims::filled(x.rank(), 0) && high == low) return x;
  return pad(x, low, high, value);
}

Tensor tap(const Tensor& padded, const Windows& windows, const Dims& place) {
  Tensor part = padded;
  for (int i = 0; i < windows.axes(); ++i) {
    const int64_t first = place[i] * windows.dilation[i];
    const int64_t count = (padded.dim(i + 2) - windows.span(i)) / windows.stride[i] + 1;
    part =
        slice(part, i + 2, first, first + (count - 1) * windows.stride[i] + 1, windows.stride[i]);
  }
  return part;
}

}  // namespace weft::onnx
