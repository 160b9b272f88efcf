// Computes movement and the leaves that have no memory, by finding the source of each element.
#include "weft/backends/reference/kernels.h"

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

// Returns the index into the only input that result index `i` shows; for `pad` it may be out of
// range.
Dims source(const Node& node, const Shape& from, const Dims& i) {
  std::string_view op = node.op->name;
  Dims index = i;
  if (op == "reshape") return unravel(linear(i, node.type.shape), from);
  if (op == "permute") {
    const Dims& order = node.attrs.dims("order");
    for (int k = 0; k < i.size(); ++k) index[static_cast<int>(order[k])] = i[k];
  } else if (op == "broadcast") {
    for (int k = 0; k < i.size(); ++k) index[k] = from[k] == 1 ? 0 : i[k];
  } else if (op == "slice") {
    int axis = axis_of(node);
    index[axis] = node.attrs.integer("start") + i[axis] * node.attrs.integer("step");
  } else if (op == "flip") {
    for (int64_t axis : node.attrs.dims("axes")) {
      int k = static_cast<int>(axis);
      index[k] = from[k] - 1 - i[k];
    }
  } else if (op == "pad") {
    for (int k = 0; k < i.size(); ++k) index[k] = i[k] - node.attrs.dims("low")[k];
  } else {
    WEFT_ASSERT(false, "the reference does not know the movement {}", op);
  }
  return index;
}

bool inside(const Dims& index, const Shape& shape) {
  for (int i = 0; i < index.size(); ++i)
    if (index[i] < 0 || index[i] >= shape[i]) return false;
  return true;
}

void concat(const Node& node, const Operands& in, const View& out) {
  int axis = axis_of(node);
  int64_t start = 0;
  for (size_t part = 0; part < in.size(); ++part) {
    View from = in[part];
    for_each_index(from.shape(), [&](const Dims& i) {
      Dims index = i;
      index[axis] += start;
      out.copy(index, from, i);
    });
    start += from.shape()[axis];
  }
}

// Sets an element to the value of an attribute.
void set_constant(const View& out, const Dims& index, double value) {
  if (is_float(out.dtype()))
    out.set(index, value);
  else
    out.set(index, static_cast<int64_t>(value));
}
}  // namespace

void movement(const Node& node, const Operands& in, const View& out) {
  if (node.op->name == "concat") return concat(node, in, out);
  View x = in[0];
  for_each_index(out.shape(), [&](const Dims& i) {
    Dims from = source(node, x.shape(), i);
    if (inside(from, x.shape()))
      out.copy(i, x, from);
    else
      set_constant(out, i, node.attrs.number("value"));
  });
}

void leaf(const Node& node, const Operands&, const View& out) {
  for_each_index(out.shape(), [&](const Dims& i) {
    if (node.op->name == "iota")
      out.set(i, i[axis_of(node)]);
    else
      set_constant(out, i, node.attrs.number("value"));
  });
}
}  // namespace weft::reference
