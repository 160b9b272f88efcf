// Computes pooling over windows of x[N, C, H, W].
#include <cmath>

#include "weft/backends/reference/kernels.h"

namespace weft::reference {
namespace {
// Calls f(index into x) for the elements of window `y` that are not padding, row by row.
template <class F>
void for_each_in_window(const Node& node, const Shape& x, const Dims& y, F&& f) {
  const Dims &stride = node.attrs.dims("stride"), &padding = node.attrs.dims("padding");
  for_each_index(node.attrs.dims("kernel"), [&](const Dims& k) {
    Dims index{y[0], y[1], y[2] * stride[0] + k[0] - padding[0],
               y[3] * stride[1] + k[1] - padding[1]};
    if (index[2] >= 0 && index[2] < x[2] && index[3] >= 0 && index[3] < x[3]) f(index);
  });
}

// Calls f(window) for the windows among `windows` that cover element `x`.
template <class F>
void for_each_window_over(const Node& node, const Shape& windows, const Dims& x, F&& f) {
  const Dims &stride = node.attrs.dims("stride"), &padding = node.attrs.dims("padding");
  for_each_index(node.attrs.dims("kernel"), [&](const Dims& k) {
    Dims y = x;
    for (int s = 0; s < 2; ++s) {
      int64_t start = x[2 + s] + padding[s] - k[s];
      if (start < 0 || start % stride[s] != 0 || start / stride[s] >= windows[2 + s]) return;
      y[2 + s] = start / stride[s];
    }
    f(y);
  });
}

// Returns the index of the first maximum of window `y`; NaN exceeds everything, and the last NaN
// wins.
Dims maximum_of(const Node& node, const View& x, const Dims& y) {
  Dims best;
  for_each_in_window(node, x.shape(), y, [&](const Dims& index) {
    double value = x.get<double>(index);
    if (best.empty() || value > x.get<double>(best) || std::isnan(value)) best = index;
  });
  return best;
}

double divisor(const Node& node, const Shape& x, const Dims& y) {
  if (node.attrs.integer("count_include_pad") != 0)
    return static_cast<double>(element_count(node.attrs.dims("kernel")));
  double count = 0;
  for_each_in_window(node, x, y, [&](const Dims&) { ++count; });
  return count;
}
}  // namespace

void max_pool(const Node& node, const Operands& in, const View& out) {
  View x = in[0];
  for_each_index(out.shape(), [&](const Dims& y) { out.copy(y, x, maximum_of(node, x, y)); });
}

void max_pool_gradient(const Node& node, const Operands& in, const View& out) {
  View x = in[0], dy = in[1];
  for_each_index(out.shape(), [&](const Dims& i) {
    double total = 0;
    for_each_window_over(node, dy.shape(), i, [&](const Dims& y) {
      if (maximum_of(node, x, y) == i) total += dy.get<double>(y);
    });
    out.set(i, total);
  });
}

void avg_pool(const Node& node, const Operands& in, const View& out) {
  View x = in[0];
  for_each_index(out.shape(), [&](const Dims& y) {
    double total = 0;
    for_each_in_window(node, x.shape(), y,
                       [&](const Dims& index) { total += x.get<double>(index); });
    out.set(y, total / divisor(node, x.shape(), y));
  });
}

void avg_pool_gradient(const Node& node, const Operands& in, const View& out) {
  View dy = in[0];
  for_each_index(out.shape(), [&](const Dims& i) {
    double total = 0;
    for_each_window_over(node, dy.shape(), i, [&](const Dims& y) {
      total += dy.get<double>(y) / divisor(node, out.shape(), y);
    });
    out.set(i, total);
  });
}
}  // namespace weft::reference
