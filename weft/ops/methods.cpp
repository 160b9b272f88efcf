// The methods of Tensor, each of which calls the function of its name.
#include "weft/ops/ops.h"

namespace weft {
namespace {
ReduceOptions over(const Axes& axes, bool keepdim) { return {.axes = axes, .keepdim = keepdim}; }
}  // namespace

Tensor Tensor::reshape(const Shape& shape, Where where) const {
  return weft::reshape({*this, where}, shape);
}
Tensor Tensor::permute(const Dims& order, Where where) const {
  return weft::permute({*this, where}, order);
}
Tensor Tensor::transpose(int a, int b, Where where) const {
  return weft::transpose({*this, where}, a, b);
}
Tensor Tensor::flatten(int first, int last, Where where) const {
  return weft::flatten({*this, where}, first, last);
}
Tensor Tensor::squeeze(int axis, Where where) const { return weft::squeeze({*this, where}, axis); }
Tensor Tensor::unsqueeze(int axis, Where where) const {
  return weft::unsqueeze({*this, where}, axis);
}
Tensor Tensor::broadcast_to(const Shape& shape, Where where) const {
  return weft::broadcast_to({*this, where}, shape);
}
Tensor Tensor::cast(DType dtype, Where where) const { return weft::cast({*this, where}, dtype); }
Tensor Tensor::sum(const Axes& axes, bool keepdim, Where where) const {
  return weft::sum({*this, where}, over(axes, keepdim));
}
Tensor Tensor::mean(const Axes& axes, bool keepdim, Where where) const {
  return weft::mean({*this, where}, over(axes, keepdim));
}
Tensor Tensor::prod(const Axes& axes, bool keepdim, Where where) const {
  return weft::prod({*this, where}, over(axes, keepdim));
}
Tensor Tensor::max(const Axes& axes, bool keepdim, Where where) const {
  return weft::max({*this, where}, over(axes, keepdim));
}
Tensor Tensor::min(const Axes& axes, bool keepdim, Where where) const {
  return weft::min({*this, where}, over(axes, keepdim));
}
Tensor Tensor::any(const Axes& axes, bool keepdim, Where where) const {
  return weft::any({*this, where}, over(axes, keepdim));
}
Tensor Tensor::all(const Axes& axes, bool keepdim, Where where) const {
  return weft::all({*this, where}, over(axes, keepdim));
}
Tensor Tensor::argmax(int axis, bool keepdim, Where where) const {
  return weft::argmax({*this, where}, axis, keepdim);
}
Tensor Tensor::argmin(int axis, bool keepdim, Where where) const {
  return weft::argmin({*this, where}, axis, keepdim);
}
}  // namespace weft
