// Computes matrix products and convolutions by their definitions.
#include "weft/backends/reference/kernels.h"

namespace weft::reference {
namespace {
template <class T>
void matmul_as(const Operands& in, const View& out) {
  View a = in[0], b = in[1];
  int rank = out.rank();
  for_each_index(out.shape(), [&](const Dims& i) {
    Dims left = i, right = i;
    for (int k = 0; k < rank - 2; ++k) {  // batch axes of extent 1 broadcast
      if (a.shape()[k] == 1) left[k] = 0;
      if (b.shape()[k] == 1) right[k] = 0;
    }
    left[rank - 1] = right[rank - 2] = 0;
    int64_t from_a = a.position(left), from_b = b.position(right);
    T total = 0;
    for (int64_t k = 0; k < a.shape()[rank - 1]; ++k) {
      total = plus(total, times(a.at<T>(from_a), b.at<T>(from_b)));
      from_a += a.layout->strides[rank - 1];
      from_b += b.layout->strides[rank - 2];
    }
    out.set(i, total);
  });
}

// y[n, o, p, q] = sum over c, u, v of x[n, group's c, p, q and tap u, v] weight[o, c, u, v].
struct Convolution {
  Dims stride, padding, dilation;
  int64_t in_each, out_each;  // channels of one group
  Convolution(const Node& node, const Shape& x, const Shape& y)
      : stride(node.attrs.dims("stride")),
        padding(node.attrs.dims("padding")),
        dilation(node.attrs.dims("dilation")),
        in_each(x[1] / node.attrs.integer("groups")),
        out_each(y[1] / node.attrs.integer("groups")) {}

  // Sets `from` to the index into x that output y reads at tap (c, u, v), which may be in the
  // padding.
  void read_index(const Dims& y, const Dims& tap, Dims& from) const {
    from[0] = y[0];
    from[1] = y[1] / out_each * in_each + tap[0];
    for (int s = 0; s < 2; ++s)
      from[2 + s] = y[2 + s] * stride[s] + tap[1 + s] * dilation[s] - padding[s];
  }
};

bool inside_image(const Dims& index, const Shape& shape) {
  return index[2] >= 0 && index[2] < shape[2] && index[3] >= 0 && index[3] < shape[3];
}
}  // namespace

void matmul(const Node&, const Operands& in, const View& out) {
  if (is_float(out.dtype()))
    matmul_as<double>(in, out);
  else
    matmul_as<int64_t>(in, out);
}

// Indices are created once and then updated element by element, as creating an index costs as much
// as a multiplication.
void conv(const Node& node, const Operands& in, const View& out) {
  View x = in[0], weight = in[1];
  const Shape &from_shape = x.shape(), &w = weight.shape();
  Convolution convolution(node, from_shape, out.shape());
  Dims from = Dims::filled(4, 0), at = from;  // the indices of the element and the weight
  for_each_index(out.shape(), [&](const Dims& y) {
    double total = 0;
    at[0] = y[1];
    for_each_index({w[1], w[2], w[3]}, [&](const Dims& tap) {
      convolution.read_index(y, tap, from);
      if (!inside_image(from, from_shape)) return;
      for (int i = 0; i < 3; ++i) at[1 + i] = tap[i];
      total += x.get<double>(from) * weight.get<double>(at);
    });
    out.set(y, total);
  });
}

void conv_input_gradient(const Node& node, const Operands& in, const View& out) {
  View dy = in[0], weight = in[1];
  Convolution convolution(node, out.shape(), dy.shape());
  Shape outputs{convolution.out_each, weight.shape()[2], weight.shape()[3]};
  Dims y = Dims::filled(4, 0), at = y;
  for_each_index(out.shape(), [&](const Dims& x) {
    double total = 0;
    const int64_t group = x[1] / convolution.in_each;
    y[0] = x[0];
    at[1] = x[1] - group * convolution.in_each;
    for_each_index(outputs, [&](const Dims& o) {  // channel within the group, and tap
      y[1] = at[0] = group * convolution.out_each + o[0];
      for (int s = 0; s < 2; ++s) {  // the output that would read x at this tap
        const int64_t first =
            x[2 + s] + convolution.padding[s] - o[1 + s] * convolution.dilation[s];
        if (first % convolution.stride[s] != 0) return;
        y[2 + s] = first / convolution.stride[s];
        at[2 + s] = o[1 + s];
      }
      if (inside_image(y, dy.shape())) total += dy.get<double>(y) * weight.get<double>(at);
    });
    out.set(x, total);
  });
}

void conv_weight_gradient(const Node& node, const Operands& in, const View& out) {
  View x = in[0], dy = in[1];
  Convolution convolution(node, x.shape(), dy.shape());
  const Shape outputs{dy.shape()[0], dy.shape()[2], dy.shape()[3]};
  Dims from = Dims::filled(4, 0), y = from, tap = Dims::filled(3, 0);
  for_each_index(out.shape(), [&](const Dims& w) {
    double total = 0;
    y[1] = w[0];
    for (int i = 0; i < 3; ++i) tap[i] = w[1 + i];
    for_each_index(outputs, [&](const Dims& o) {
      y[0] = o[0], y[2] = o[1], y[3] = o[2];
      convolution.read_index(y, tap, from);
      if (inside_image(from, x.shape())) total += x.get<double>(from) * dy.get<double>(y);
    });
    out.set(w, total);
  });
}
}  // namespace weft::reference
