// Defines the functions of TensorMethods, each of which calls the function of its name. Only the
// files that instantiate it include them.
#pragma once

#include "weft/ops/ops.h"

namespace weft {
template <class Self>
Arg TensorMethods<Self>::self(const Where& where) const {
  return {static_cast<const Self&>(*this), where};
}

template <class Self>
Tensor TensorMethods<Self>::reshape(const Shape& shape, Where where) const {
  return weft::reshape(self(where), shape);
}
template <class Self>
Tensor TensorMethods<Self>::permute(const Dims& order, Where where) const {
  return weft::permute(self(where), order);
}
template <class Self>
Tensor TensorMethods<Self>::transpose(int a, int b, Where where) const {
  return weft::transpose(self(where), a, b);
}
template <class Self>
Tensor TensorMethods<Self>::flatten(int first, int last, Where where) const {
  return weft::flatten(self(where), first, last);
}
template <class Self>
Tensor TensorMethods<Self>::squeeze(int axis, Where where) const {
  return weft::squeeze(self(where), axis);
}
template <class Self>
Tensor TensorMethods<Self>::unsqueeze(int axis, Where where) const {
  return weft::unsqueeze(self(where), axis);
}
template <class Self>
Tensor TensorMethods<Self>::broadcast_to(const Shape& shape, Where where) const {
  return weft::broadcast_to(self(where), shape);
}
template <class Self>
Tensor TensorMethods<Self>::cast(DType dtype, Where where) const {
  return weft::cast(self(where), dtype);
}
template <class Self>
Tensor TensorMethods<Self>::sum(const Axes& axes, bool keepdim, Where where) const {
  return weft::sum(self(where), {.axes = axes, .keepdim = keepdim});
}
template <class Self>
Tensor TensorMethods<Self>::mean(const Axes& axes, bool keepdim, Where where) const {
  return weft::mean(self(where), {.axes = axes, .keepdim = keepdim});
}
template <class Self>
Tensor TensorMethods<Self>::prod(const Axes& axes, bool keepdim, Where where) const {
  return weft::prod(self(where), {.axes = axes, .keepdim = keepdim});
}
template <class Self>
Tensor TensorMethods<Self>::max(const Axes& axes, bool keepdim, Where where) const {
  return weft::max(self(where), {.axes = axes, .keepdim = keepdim});
}
template <class Self>
Tensor TensorMethods<Self>::min(const Axes& axes, bool keepdim, Where where) const {
  return weft::min(self(where), {.axes = axes, .keepdim = keepdim});
}
template <class Self>
Tensor TensorMethods<Self>::any(const Axes& axes, bool keepdim, Where where) const {
  return weft::any(self(where), {.axes = axes, .keepdim = keepdim});
}
template <class Self>
Tensor TensorMethods<Self>::all(const Axes& axes, bool keepdim, Where where) const {
  return weft::all(self(where), {.axes = axes, .keepdim = keepdim});
}
template <class Self>
Tensor TensorMethods<Self>::argmax(std::optional<int> axis, bool keepdim, Where where) const {
  return weft::argmax(self(where), axis, keepdim);
}
template <class Self>
Tensor TensorMethods<Self>::argmin(std::optional<int> axis, bool keepdim, Where where) const {
  return weft::argmin(self(where), axis, keepdim);
}
template <class Self>
Tensor TensorMethods<Self>::variance(const Axes& axes, bool keepdim, Where where) const {
  return weft::variance(self(where), {.axes = axes, .keepdim = keepdim});
}
template <class Self>
Tensor TensorMethods<Self>::stddev(const Axes& axes, bool keepdim, Where where) const {
  return weft::stddev(self(where), {.axes = axes, .keepdim = keepdim});
}
template <class Self>
Tensor TensorMethods<Self>::norm(Where where) const {
  return weft::norm(self(where));
}
template <class Self>
Tensor TensorMethods<Self>::sort(int axis, bool descending, Where where) const {
  return weft::sort(self(where), axis, descending);
}
template <class Self>
Tensor TensorMethods<Self>::cumsum(int axis, Where where) const {
  return weft::cumsum(self(where), axis);
}
}  // namespace weft
