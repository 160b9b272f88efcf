// The methods of Value, each of which calls the function of its name.
#include "weft/ops/ops.h"

namespace weft {
namespace {
ReduceOptions over(const Axes& axes, bool keepdim) { return {.axes = axes, .keepdim = keepdim}; }
}  // namespace

Value Value::reshape(const Shape& shape, Where where) const {
  return weft::reshape({*this, where}, shape);
}
Value Value::permute(const Dims& order, Where where) const {
  return weft::permute({*this, where}, order);
}
Value Value::transpose(int a, int b, Where where) const {
  return weft::transpose({*this, where}, a, b);
}
Value Value::flatten(int first, int last, Where where) const {
  return weft::flatten({*this, where}, first, last);
}
Value Value::squeeze(int axis, Where where) const { return weft::squeeze({*this, where}, axis); }
Value Value::unsqueeze(int axis, Where where) const {
  return weft::unsqueeze({*this, where}, axis);
}
Value Value::broadcast_to(const Shape& shape, Where where) const {
  return weft::broadcast_to({*this, where}, shape);
}
Value Value::cast(DType dtype, Where where) const { return weft::cast({*this, where}, dtype); }
Value Value::sum(const Axes& axes, bool keepdim, Where where) const {
  return weft::sum({*this, where}, over(axes, keepdim));
}
Value Value::mean(const Axes& axes, bool keepdim, Where where) const {
  return weft::mean({*this, where}, over(axes, keepdim));
}
Value Value::prod(const Axes& axes, bool keepdim, Where where) const {
  return weft::prod({*this, where}, over(axes, keepdim));
}
Value Value::max(const Axes& axes, bool keepdim, Where where) const {
  return weft::max({*this, where}, over(axes, keepdim));
}
Value Value::min(const Axes& axes, bool keepdim, Where where) const {
  return weft::min({*this, where}, over(axes, keepdim));
}
Value Value::any(const Axes& axes, bool keepdim, Where where) const {
  return weft::any({*this, where}, over(axes, keepdim));
}
Value Value::all(const Axes& axes, bool keepdim, Where where) const {
  return weft::all({*this, where}, over(axes, keepdim));
}
Value Value::argmax(int axis, bool keepdim, Where where) const {
  return weft::argmax({*this, where}, axis, keepdim);
}
Value Value::argmin(int axis, bool keepdim, Where where) const {
  return weft::argmin({*this, where}, axis, keepdim);
}
}  // namespace weft
