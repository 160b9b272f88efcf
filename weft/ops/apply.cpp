#include "weft/ops/apply.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace weft {
namespace {
Tensor broadcast_if_needed(const Tensor& x, const Shape& shape) {
  return x.shape() == shape ? x : broadcast_to(x, shape);
}
}  // namespace

Tensor to_value(const Arg& arg, const Tensor& like) {
  if (!arg.is_scalar) return arg.value.type(), arg.value;
  DType dtype = like.defined() ? like.dtype() : (arg.integral ? DType::i64 : DType::f32);
  if (!is_float(dtype) && !arg.integral) dtype = DType::f32;
  if (dtype == DType::boolean) dtype = DType::i64;
  return scalar(arg.scalar, dtype);
}

Tensor float_input(const Arg& x, std::string_view op) {
  Tensor value = to_value(x, {});
  WEFT_CHECK(is_float(value.dtype()),
             "[{}] needs a floating point tensor. Got {}. Hint: cast it first.", op,
             name(value.dtype()));
  return value;
}

void check_numeric(DType dtype, std::string_view op) {
  WEFT_CHECK(dtype != DType::boolean, "[{}] needs numbers. Got bool. Hint: cast(x, DType::i64).",
             op);
}

Shape broadcast_shapes(const Shape& a, const Shape& b, std::string_view op) {
  int rank = std::max(a.size(), b.size());
  Shape shape = Dims::filled(rank, 1);
  for (int i = 0; i < rank; ++i) {
    int64_t m = i < rank - a.size() ? 1 : a[i - (rank - a.size())];
    int64_t n = i < rank - b.size() ? 1 : b[i - (rank - b.size())];
    WEFT_CHECK(m == n || m == 1 || n == 1,
               "[{}] shapes do not broadcast. Got {} and {}: axis {} has {} and {}.", op,
               to_string(a), to_string(b), i, m, n);
    shape[i] = m == 1 ? n : m;
  }
  return shape;
}

std::pair<Tensor, Tensor> match(const Arg& a, const Arg& b, std::string_view op) {
  Tensor x = to_value(a, b.value), y = to_value(b, a.value);
  // A scalar that the tensor's dtype cannot hold (0.5 with integers) promotes the tensor instead.
  if (!a.value.defined() && x.dtype() != y.dtype()) y = cast(y, x.dtype());
  if (!b.value.defined() && x.dtype() != y.dtype()) x = cast(x, y.dtype());
  const auto is_narrower = [](DType a, DType b) {
    return std::pair(is_float(a), info(a).bits) < std::pair(is_float(b), info(b).bits);
  };
  WEFT_CHECK(x.dtype() == y.dtype(), "[{}] dtypes differ. Got {} and {}. Hint: cast(x, DType::{}).",
             op, name(x.dtype()), name(y.dtype()),
             name(std::max(x.dtype(), y.dtype(), is_narrower)));
  Shape shape = broadcast_shapes(x.shape(), y.shape(), op);
  return {broadcast_if_needed(x, shape), broadcast_if_needed(y, shape)};
}

Tensor apply_unary(const OpDef& def, const Arg& x) {
  CallSite here(x.where, def.name);
  Tensor value = to_value(x, {});
  // Functions of real numbers promote integers to float32, as PyTorch does.
  if (!def.test.integers && !def.test.booleans && !is_float(value.dtype()))
    value = cast(value, DType::f32);
  return make_node(def, {value});
}

Tensor apply_binary(const OpDef& def, const Arg& a, const Arg& b) {
  CallSite here(a.where, def.name);
  auto [x, y] = match(a, b, def.name);
  if (!def.test.integers && !is_float(x.dtype())) {
    x = cast(x, DType::f32);
    y = cast(y, DType::f32);
  }
  if (!def.test.booleans && x.dtype() == DType::boolean) {
    x = cast(x, DType::i64);
    y = cast(y, DType::i64);
  }
  return make_node(def, {x, y});
}

Dims reduce_axes(const Dims& axes, int rank, std::string_view op) {
  if (axes.empty()) return Dims::iota(rank);
  std::vector<int64_t> sorted;
  for (int64_t axis : axes) sorted.push_back(normalize_axis(axis, rank, std::string(op).c_str()));
  std::sort(sorted.begin(), sorted.end());
  WEFT_CHECK(std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end(),
             "[{}] an axis is named twice. Got {}.", op, to_string(axes));
  return Dims(sorted);
}

Tensor sum_to(const Tensor& x, const Shape& shape) {
  if (x.shape() == shape) return x;
  int extra = x.rank() - shape.size();
  Dims axes;
  for (int i = 0; i < x.rank(); ++i)
    if (i < extra || (shape[i - extra] == 1 && x.shape()[i] != 1)) axes.push_back(i);
  Tensor reduced = axes.empty() ? x : sum(x, {.axes = axes, .keepdim = true});
  return reduced.shape() == shape ? reduced : reshape(reduced, shape);
}

double product_flops(const Node& node) {
  return 2.0 * static_cast<double>(node.type.elements()) *
         static_cast<double>(node.inputs[0].dim(-1));
}
}  // namespace weft
