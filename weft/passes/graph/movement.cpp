#include <algorithm>

#include "weft/ir/op_def.h"
#include "weft/ops/ops.h"
#include "weft/passes/graph/algebra.h"
#include "weft/passes/graph/fold.h"

namespace weft {
namespace {
// The functions of ops.h return their argument where there is nothing to move, so a merge of two
// movements may yield a value that is no movement at all.
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
  int64_t last() const { return start + (count - 1) * step; }  // last selected index
};

// Replaces a slice that is within one part of a concatenation by a slice of the part.
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
  if (y.shape() == x.shape()) return x;  // nothing is cut off, so the step is 1
  if (range.count == 0) return {};
  if (x->is("slice")) {
    Range inner(x);
    if (inner.axis != range.axis) return {};
    int64_t start = inner.start + range.start * inner.step, step = inner.step * range.step;
    return slice(x->inputs[0], range.axis, start, start + (range.count - 1) * step + 1, step);
  }
  if (x->is("concat") && x->attrs.integer("axis") == range.axis) return slice_of_concat(range, x);
  if (x->is("pad")) {  // cuts off only padding
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

// A Padded is a value with zeros around it along one axis.
struct Padded {
  Value value;
  int axis = -1;
  int64_t low = 0, high = 0;

  explicit Padded(const Value& x) {
    if (!x->is("pad") || x->attrs.number("value") != 0) return;
    const Dims &lows = x->attrs.dims("low"), &highs = x->attrs.dims("high");
    int axes = 0;
    for (int i = 0; i < lows.size(); ++i)
      if (lows[i] != 0 || highs[i] != 0) ++axes, axis = i;
    if (axes != 1 || lows[axis] < 0 || highs[axis] < 0) return;
    value = x->inputs[0], low = lows[axis], high = highs[axis];
  }
};

// Replaces the sum of gradients of adjacent slices, each padded with zeros, by a concatenation.
// Nothing is added, so that the gradients may be cast afterwards.
Value simplify_sum_of_pads(const Value& a, const Value& b) {
  if (a->is("cast") && b->is("cast") && a->inputs[0].dtype() == b->inputs[0].dtype()) {
    const Value side_by_side = simplify_sum_of_pads(a->inputs[0], b->inputs[0]);
    return side_by_side.defined() ? cast(side_by_side, a.dtype()) : Value();
  }
  Padded left(a), right(b);
  if (!left.value.defined() || !right.value.defined() || left.axis != right.axis) return {};
  if (left.low > right.low) std::swap(left, right);
  if (left.low + left.value.dim(left.axis) != right.low) return {};
  Dims low = Dims::filled(a.rank(), 0), high = low;
  low[left.axis] = left.low, high[left.axis] = right.high;
  const Value parts[] = {left.value, right.value};
  return pad(concat(parts, left.axis), low, high);
}

// Merges nested concatenations, and adjacent slices of one value, into one part. Concatenations of
// a value with itself would have exponentially many parts, which are left nested.
Value simplify_concat(const Value& y) {
  constexpr size_t most_parts = 4096;
  const int64_t axis = y->attrs.integer("axis");
  const auto is_nested = [&](const Value& part) {
    return part->is("concat") && part->attrs.integer("axis") == axis;
  };
  size_t merged = 0;
  for (const Value& part : y->inputs) merged += is_nested(part) ? part->inputs.size() : 1;
  std::vector<Value> parts;
  bool simpler = y->inputs.size() == 1;
  for (const Value& part : y->inputs) {
    const bool nested = merged <= most_parts && is_nested(part);
    simpler |= nested;
    for (const Value& each : nested ? part->inputs : std::vector<Value>{part}) {
      const bool slices = !parts.empty() && each->is("slice") && parts.back()->is("slice") &&
                          each->attrs.integer("axis") == axis &&
                          parts.back()->attrs.integer("axis") == axis &&
                          each->inputs[0].node() == parts.back()->inputs[0].node();
      if (slices) {
        const Range before(parts.back()), range(each);
        if (before.step == 1 && range.step == 1 && before.stop == range.start) {
          parts.back() = slice(each->inputs[0], range.axis, before.start, range.stop);
          simpler = true;
          continue;
        }
      }
      parts.push_back(each);
    }
  }
  if (!simpler) return {};
  return parts.size() == 1 ? parts[0] : concat(parts, static_cast<int>(axis));
}

Value simplify_flip(const Value& y, const Value& x) {
  const Dims& axes = y->attrs.dims("axes");
  Dims left;  // axes with more than one element
  for (int64_t axis : axes)
    if (y.dim(static_cast<int>(axis)) > 1) left.push_back(axis);
  if (left.size() < axes.size()) return flip(x, left);
  return x->is("flip") && x->attrs.dims("axes") == axes ? x->inputs[0] : Value();
}
}  // namespace

Value simplify_movement(const Value& y, bool wrong) {
  if (y->is("add")) return simplify_sum_of_pads(y->inputs[0], y->inputs[1]);
  if (y->op->kind != OpKind::movement || y->inputs.empty()) return {};
  const Value& x = y->inputs[0];
  if (y->is("reshape")) return simplify_reshape(y, x);
  if (y->is("permute")) return simplify_permute(y, x);
  if (y->is("broadcast")) return simplify_broadcast(y, x);
  if (y->is("slice")) return simplify_slice(y, x);
  if (y->is("pad")) return simplify_pad(y, x);
  if (y->is("flip")) return wrong ? x : simplify_flip(y, x);
  if (y->is("concat")) return simplify_concat(y);
  return {};
}

Value simplify_reduction(const Value& y) {
  if (y->op->kind != OpKind::reduce) return {};
  const Value& x = y->inputs[0];
  Dims left;
  for (int64_t axis : y->attrs.dims("axes"))
    if (x.dim(static_cast<int>(axis)) != 1) left.push_back(axis);
  if (left.size() == y->attrs.dims("axes").size()) return {};
  if (y.dtype() != x.dtype() || y->op->combine == ScalarOp::none)  // the index of the only element
    return left.empty() ? filled(y.type(), 0) : Value();
  return left.empty() ? x : make_node(*y->op, {x}, {{"axes", left}});
}

}  // namespace weft
