#include <algorithm>

#include "weft/ir/op_def.h"
#include "weft/ops/ops.h"
#include "weft/passes/algebra.h"
#include "weft/passes/fold.h"

namespace weft {
namespace {
// The functions of ops.h return their argument where there is nothing to move: `same` turns that,
// and every merge of two movements, into a replacement.
Value simplify_reshape(const Value& y, const Value& x) {
  if (x->is("reshape")) return reshape(x->inputs[0], y.shape());
  return y.shape() == x.shape() ? x : Value();
}

Value simplify_permute(const Value& y, const Value& x) {
  const Dims& order = y->attrs.dims("order");
  if (order == Dims::iota(order.size())) return x;
  if (!x->is("permute")) return {};
  const Dims& before = x->attrs.dims("order");
  Dims both;
  for (int64_t axis : order) both.push_back(before[static_cast<int>(axis)]);
  return permute(x->inputs[0], both);
}

Value simplify_broadcast(const Value& y, const Value& x) {
  if (y.shape() == x.shape()) return x;
  return x->is("broadcast") ? broadcast_to(x->inputs[0], y.shape()) : Value();
}

struct Range {
  int axis;
  int64_t start, stop, step, count;
  explicit Range(const Value& slice)
      : axis(static_cast<int>(slice->attrs.integer("axis"))),
        start(slice->attrs.integer("start")),
        stop(slice->attrs.integer("stop")),
        step(slice->attrs.integer("step")),
        count(slice.dim(axis)) {}
  int64_t last() const { return start + (count - 1) * step; }  // the last index that it takes
};

// A slice that takes from one part of a concatenation only.
Value slice_of_concat(const Range& range, const Value& x) {
  int64_t begin = 0;
  for (const Value& part : x->inputs) {
    int64_t end = begin + part.dim(range.axis);
    if (begin <= range.start && range.last() < end)
      return slice(part, range.axis, range.start - begin, range.last() + 1 - begin, range.step);
    begin = end;
  }
  return {};
}

Value simplify_slice(const Value& y, const Value& x) {
  Range range(y);
  if (y.shape() == x.shape()) return x;  // nothing is left out, so every step is 1
  if (range.count == 0) return {};
  if (x->is("slice")) {
    Range inner(x);
    if (inner.axis != range.axis) return {};
    int64_t start = inner.start + range.start * inner.step, step = inner.step * range.step;
    return slice(x->inputs[0], range.axis, start, start + (range.count - 1) * step + 1, step);
  }
  if (x->is("concat") && x->attrs.integer("axis") == range.axis) return slice_of_concat(range, x);
  if (x->is("pad")) {  // cuts off just what was put on
    Dims low = x->attrs.dims("low"), high = x->attrs.dims("high");
    int64_t extent = x->inputs[0].dim(range.axis);
    bool inside = range.start >= low[range.axis] && range.last() < low[range.axis] + extent;
    if (!inside) return {};
    Value part = slice(x->inputs[0], range.axis, range.start - low[range.axis],
                       range.last() + 1 - low[range.axis], range.step);
    low[range.axis] = high[range.axis] = 0;
    return pad(part, low, high, x->attrs.number("value"));
  }
  return {};
}

Value simplify_pad(const Value& y, const Value& x) {
  if (y.shape() == x.shape()) return x;
  if (!x->is("pad") || x->attrs.number("value") != y->attrs.number("value")) return {};
  Dims low = y->attrs.dims("low"), high = y->attrs.dims("high");
  for (int i = 0; i < low.size(); ++i) {
    low[i] += x->attrs.dims("low")[i];
    high[i] += x->attrs.dims("high")[i];
  }
  return pad(x->inputs[0], low, high, y->attrs.number("value"));
}

Value simplify_flip(const Value& y, const Value& x) {
  const Dims& axes = y->attrs.dims("axes");
  Dims left;  // axes that hold more than one element
  for (int64_t axis : axes)
    if (y.dim(static_cast<int>(axis)) > 1) left.push_back(axis);
  if (left.size() < axes.size()) return flip(x, left);
  return x->is("flip") && x->attrs.dims("axes") == axes ? x->inputs[0] : Value();
}
}  // namespace

Value simplify_movement(const Value& y, bool wrong) {
  if (y->op->kind != OpKind::movement || y->inputs.empty()) return {};
  const Value& x = y->inputs[0];
  if (y->is("reshape")) return simplify_reshape(y, x);
  if (y->is("permute")) return simplify_permute(y, x);
  if (y->is("broadcast")) return simplify_broadcast(y, x);
  if (y->is("slice")) return simplify_slice(y, x);
  if (y->is("pad")) return simplify_pad(y, x);
  if (y->is("flip")) return wrong ? x : simplify_flip(y, x);
  if (y->is("concat") && y->inputs.size() == 1) return x;
  return {};
}

Value simplify_reduction(const Value& y) {
  if (y->op->kind != OpKind::reduce) return {};
  const Value& x = y->inputs[0];
  Dims left;
  for (int64_t axis : y->attrs.dims("axes"))
    if (x.dim(static_cast<int>(axis)) != 1) left.push_back(axis);
  if (left.size() == y->attrs.dims("axes").size()) return {};
  if (y.dtype() != x.dtype() || y->is("argmax") ||
      y->is("argmin"))  // the index of the only element
    return left.empty() ? filled(y.type(), 0) : Value();
  return left.empty() ? x : make_node(*y->op, {x}, {{"axes", left}});
}

}  // namespace weft
