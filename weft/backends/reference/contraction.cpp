// Matrix products and convolutions, by their definitions.
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
    T total = 0;
    for (int64_t k = 0; k < a.shape()[rank - 1]; ++k) {
      left[rank - 1] = right[rank - 2] = k;
      total = plus(total, times(a.get<T>(left), b.get<T>(right)));
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

  // The index into x that output (n, o, p, q) reads at tap (c, u, v); may lie in the padding.
  Dims input_index(const Dims& y, const Dims& tap) const {
    Dims index{y[0], y[1] / out_each * in_each + tap[0], 0, 0};
    for (int s = 0; s < 2; ++s)
      index[2 + s] = y[2 + s] * stride[s] + tap[1 + s] * dilation[s] - padding[s];
    return index;
  }
};

bool inside(const Dims& index, const Shape& shape) {
  return index[2] >= 0 && index[2] < shape[2] && index[3] >= 0 && index[3] < shape[3];
}
Dims weight_index(int64_t o, const Dims& tap) { return {o, tap[0], tap[1], tap[2]}; }
Dims taps(const Shape& weight) { return {weight[1], weight[2], weight[3]}; }
}  // namespace

void matmul(const Node&, const Operands& in, const View& out) {
  if (is_float(out.dtype()))
    matmul_as<double>(in, out);
  else
    matmul_as<int64_t>(in, out);
}

void conv(const Node& node, const Operands& in, const View& out) {
  View x = in[0], weight = in[1];
  Convolution convolution(node, x.shape(), out.shape());
  for_each_index(out.shape(), [&](const Dims& y) {
    double total = 0;
    for_each_index(taps(weight.shape()), [&](const Dims& tap) {
      Dims from = convolution.input_index(y, tap);
      if (inside(from, x.shape()))
        total += x.get<double>(from) * weight.get<double>(weight_index(y[1], tap));
    });
    out.set(y, total);
  });
}

void conv_input_gradient(const Node& node, const Operands& in, const View& out) {
  View dy = in[0], weight = in[1];
  Convolution convolution(node, out.shape(), dy.shape());
  Shape outputs{convolution.out_each, weight.shape()[2], weight.shape()[3]};
  for_each_index(out.shape(), [&](const Dims& x) {
    double total = 0;
    int64_t group = x[1] / convolution.in_each;
    for_each_index(outputs, [&](const Dims& o) {  // channel within the group, and tap
      Dims y{x[0], group * convolution.out_each + o[0], 0, 0};
      Dims tap{x[1] - group * convolution.in_each, o[1], o[2]};
      for (int s = 0; s < 2; ++s)  // the output that would read x at this tap
        y[2 + s] = (x[2 + s] + convolution.padding[s] - tap[1 + s] * convolution.dilation[s]) /
                   convolution.stride[s];
      if (inside(y, dy.shape()) && convolution.input_index(y, tap) == x)
        total += dy.get<double>(y) * weight.get<double>(weight_index(y[1], tap));
    });
    out.set(x, total);
  });
}

void conv_weight_gradient(const Node& node, const Operands& in, const View& out) {
  View x = in[0], dy = in[1];
  Convolution convolution(node, x.shape(), dy.shape());
  for_each_index(out.shape(), [&](const Dims& w) {
    double total = 0;
    Dims tap{w[1], w[2], w[3]};
    Shape outputs{dy.shape()[0], dy.shape()[2], dy.shape()[3]};
    for_each_index(outputs, [&](const Dims& o) {
      Dims y{o[0], w[0], o[1], o[2]};
      Dims from = convolution.input_index(y, tap);
      if (inside(from, x.shape())) total += x.get<double>(from) * dy.get<double>(y);
    });
    out.set(w, total);
  });
}
}  // namespace weft::reference
