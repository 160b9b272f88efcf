// Computes movement and the leaves that have no memory, by finding the source of each element.
#include "weft/backends/reference/kernels.h"
#include "weft/ir/axis_map.h"

namespace weft::reference {
namespace {
int64_t linear(const Dims& index, const Shape& shape) {
  int64_t at = 0;
  for (int i = 0; i < index.size(); ++i) at = at * shape[i] + index[i];
  return at;
}
Dims unravel(int64_t at, const Shape& shape) {
  Dims index = shape;
  for (int i = shape.size() - 1; i >= 0; --i) {
    index[i] = at % shape[i];
    at /= shape[i];
  }
  return index;
}

int axis_of(const Node& node) { return static_cast<int>(node.attrs.integer("axis")); }

bool inside(const Dims& index, const Shape& shape) {
  for (int i = 0; i < index.size(); ++i)
    if (index[i] < 0 || index[i] >= shape[i]) return false;
  return true;
}

// Sets an element to the value of an attribute.
void set_constant(const View& out, const Dims& index, double value) {
  if (is_float(out.dtype()))
    out.set(index, value);
  else
    out.set(index, static_cast<int64_t>(value));
}

// Sets the result's element at index i to the input's element at source(i), or to attribute "value"
// if source(i) is outside of the input.
template <class Source>
void move(const Node& node, const View& x, const View& out, Source&& source) {
  for_each_index(out.shape(), [&](const Dims& i) {
    const Dims from = source(i);
    if (inside(from, x.shape()))
      out.copy(i, x, from);
    else
      set_constant(out, i, node.attrs.number("value"));
  });
}
}  // namespace

void reshape(const Node& node, const Operands& in, const View& out) {
  const View x = in[0];
  move(node, x, out, [&](const Dims& i) { return unravel(linear(i, out.shape()), x.shape()); });
}

void permute(const Node& node, const Operands& in, const View& out) {
  const Dims& order = node.attrs.dims("order");
  move(node, in[0], out, [&](const Dims& i) {
    Dims from = i;
    for (int k = 0; k < i.size(); ++k) from[static_cast<int>(order[k])] = i[k];
    return from;
  });
}

void broadcast(const Node& node, const Operands& in, const View& out) {
  const View x = in[0];
  move(node, x, out, [&](const Dims& i) {
    Dims from = i;
    for (int k = 0; k < i.size(); ++k)
      if (x.shape()[k] == 1) from[k] = 0;
    return from;
  });
}

void slice(const Node& node, const Operands& in, const View& out) {
  const int axis = axis_of(node);
  const int64_t start = node.attrs.integer("start"), step = node.attrs.integer("step");
  move(node, in[0], out, [&](const Dims& i) {
    Dims from = i;
    from[axis] = start + i[axis] * step;
    return from;
  });
}

void flip(const Node& node, const Operands& in, const View& out) {
  move(node, in[0], out, [&](const Dims& i) {
    Dims from = i;
    for (int64_t axis : node.attrs.dims("axes")) {
      const int k = static_cast<int>(axis);
      from[k] = out.shape()[k] - 1 - i[k];
    }
    return from;
  });
}

void pad(const Node& node, const Operands& in, const View& out) {
  const Dims& low = node.attrs.dims("low");
  move(node, in[0], out, [&](const Dims& i) {
    Dims from = i;
    for (int k = 0; k < i.size(); ++k) from[k] -= low[k];
    return from;
  });
}

void concat(const Node& node, const Operands& in, const View& out) {
  const int axis = axis_of(node);
  int64_t start = 0;
  for (size_t part = 0; part < in.size(); ++part) {
    const View from = in[part];
    for_each_index(from.shape(), [&](const Dims& i) {
      Dims index = i;
      index[axis] += start;
      out.copy(index, from, i);
    });
    start += from.shape()[axis];
  }
}

void constant(const Node& node, const Operands&, const View& out) {
  const double value = node.attrs.number("value");
  for_each_index(out.shape(), [&](const Dims& i) { set_constant(out, i, value); });
}

void iota(const Node& node, const Operands&, const View& out) {
  const Placement whole = place_in_whole(node);
  for_each_index(out.shape(), [&](const Dims& i) {
    int64_t index = whole.offset;
    for (int axis = 0; axis < i.size(); ++axis) index += i[axis] * whole.strides[axis];
    out.set(i, index);
  });
}
}  // namespace weft::reference
