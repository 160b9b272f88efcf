// Maps ONNX's reductions, prefix sums, softmax and norms along axes.
#include <algorithm>
#include <limits>

#include "weft/onnx/operators/operators.h"
#include "weft/onnx/operators/unrounded.h"
#include "weft/tensor/wide.h"

namespace weft::onnx {
namespace {
using Tensors = std::vector<Tensor>;

// A Reduce is applied over axes that stay with extent 1; 16-bit floats arrive as float32.
using Reduce = Tensor (*)(const Tensor& x, const ReduceOptions& over);

Tensor product(const Tensor& x, const ReduceOptions& over) { return prod(x, over); }
Tensor total(const Tensor& x, const ReduceOptions& over) { return sum(x, over); }
Tensor average(const Tensor& x, const ReduceOptions& over) { return mean(x, over); }
Tensor sum_of_magnitudes(const Tensor& x, const ReduceOptions& over) { return sum(abs(x), over); }
Tensor sum_of_squares(const Tensor& x, const ReduceOptions& over) { return sum(x * x, over); }
Tensor euclidean(const Tensor& x, const ReduceOptions& over) {
  const Tensor squares = sum_of_squares(x, over);
  return sqrt(is_float(squares.dtype()) ? squares : cast(squares, DType::f64));
}
Tensor log_sum(const Tensor& x, const ReduceOptions& over) {
  const Tensor of = sum(x, over);
  return log(is_float(of.dtype()) ? of : cast(of, DType::f64));
}
Tensor log_sum_exp(const Tensor& x, const ReduceOptions& over) {
  return logsumexp(is_float(x.dtype()) ? x : cast(x, DType::f64), over);
}
// Over no elements the maximum is the least number of the type, and the minimum the greatest.
Tensor empty_extreme(const Tensor& x, const ReduceOptions& over, bool greatest) {
  Shape shape = x.shape();
  for (int64_t axis : over.axes) shape[static_cast<int>(axis)] = 1;
  if (is_float(x.dtype())) return full(shape, greatest ? -infinity : infinity, x.dtype());
  if (x.dtype() == DType::boolean) return full(shape, greatest ? 0 : 1, x.dtype());
  const int bits = whole_bits(x.dtype());
  const bool has_sign = info(x.dtype()).kind == NumberKind::with_sign;
  const Tensor one = full(shape, 1, x.dtype());
  const Tensor least = has_sign ? shift_left(-one, bits) : zeros(shape, x.dtype());
  return greatest ? least : bitwise_not(least);
}
Tensor extreme(const Tensor& x, const ReduceOptions& over, bool greatest) {
  int64_t count = 1;
  for (int64_t axis : over.axes) count *= x.dim(static_cast<int>(axis));
  if (count == 0) return empty_extreme(x, over, greatest);
  if (x.dtype() == DType::boolean) return greatest ? any(x, over) : all(x, over);
  return greatest ? max(x, over) : min(x, over);
}
Tensor greatest(const Tensor& x, const ReduceOptions& over) { return extreme(x, over, true); }
Tensor least(const Tensor& x, const ReduceOptions& over) { return extreme(x, over, false); }

// The axes are an operand from opset `since` on (18; for sums 13), and an attribute before.
template <Reduce reduce, int64_t since = 18>
Tensors reduction(const Call& call) {
  const Tensor &given = call[0], x = widen(terms_of(given));
  auto axes = call.axes(1, since, x.rank());
  const bool all_axes = !axes || axes->empty();
  ReduceOptions over{.axes = {}, .keepdim = true};
  if (!all_axes)
    for (int axis : *axes) over.axes.push_back(axis);
  else if (!call.flag("noop_with_empty_axes"))
    over.axes = Dims::iota(x.rank());
  if (over.axes.empty()) {  // no axis: each element by itself
    const Tensor alone = reduce(unsqueeze(x, x.rank()), {.axes = {x.rank()}, .keepdim = true});
    return {cast(squeeze(alone, x.rank()), given.dtype())};
  }
  Tensor result = cast(reduce(x, over), given.dtype());
  if (call.flag("keepdims", true)) return {result};
  Shape kept;
  for (int axis = 0; axis < x.rank(); ++axis)
    if (!over.axes.contains(axis)) kept.push_back(x.dim(axis));
  return {reshape(result, kept)};
}

template <bool greatest>
Tensors arg_extreme(const Call& call) {
  const Tensor x = before_rounding(call[0]);
  const int axis = call.axis("axis", 0, x.rank());
  const bool keepdims = call.flag("keepdims", true);
  const bool last = call.flag("select_last_index");
  const Tensor from = last ? flip(x, {axis}) : x;
  const Tensor index = greatest ? argmax(from, axis, keepdims) : argmin(from, axis, keepdims);
  return {last ? x.dim(axis) - 1 - index : index};
}

// Shifts elements along an axis by `distance` and fills with `value`.
Tensor shifted(const Tensor& x, int axis, int64_t distance, double value) {
  Dims low = Dims::filled(x.rank(), 0);
  low[axis] = distance;
  const Tensor padded = pad(x, low, Dims::filled(x.rank(), 0), value);
  return slice(padded, axis, 0, x.dim(axis));
}

// Applies prefix sums or products along an axis; an exclusive one begins with `neutral`.
Tensors prefixes(const Call& call, Tensor (*combine)(const Tensor&, int), double neutral) {
  const DType dtype = call[0].dtype();
  const Tensor x = widen(terms_of(call[0]));
  const int axis = call.axis_in(call.integer_at(1), x.rank());
  const bool reverse = call.flag("reverse");
  Tensor from = reverse ? flip(x, {axis}) : x;
  if (call.flag("exclusive")) from = shifted(from, axis, 1, neutral);
  const Tensor result = cast(combine(from, axis), dtype);
  return {reverse ? flip(result, {axis}) : result};
}
Tensor sums(const Tensor& x, int axis) { return cumsum(x, axis); }
// Computes prefix products in log2(n) passes, each of which doubles their reach (Hillis and Steele
// 1986).
Tensor products(const Tensor& x, int axis) {
  Tensor y = widen(x);
  for (int64_t distance = 1; distance < x.dim(axis); distance *= 2)
    y = y * shifted(y, axis, distance, 1);
  return y;
}

// Before opset 13, these operators flatten all axes from `axis` on into one.
Tensors along_axis(const Call& call, Tensor (*function)(const Tensor&, int)) {
  const Tensor& x = call[0];
  if (call.opset() >= 13) return {function(x, call.axis("axis", -1, x.rank()))};
  const int axis = call.axis("axis", 1, x.rank());
  return {reshape(function(as_matrix(x, axis), 1), x.shape())};
}
Tensor softmax_along(const Tensor& x, int axis) { return softmax(x, axis); }
Tensor log_softmax_along(const Tensor& x, int axis) { return log_softmax(x, axis); }
Tensor hardmax_along(const Tensor& x, int axis) {
  return cast(equal(iota(x.shape(), axis), argmax(before_rounding(x), axis, true)), x.dtype());
}

Tensors lp_normalization(const Call& call) {
  const ReduceOptions over{.axes = {call.axis("axis", -1, call[0].rank())}, .keepdim = true};
  const Reduce norm = call.integer("p", 2) == 1 ? sum_of_magnitudes : euclidean;
  return {in_wide(call[0], [&](const Tensor& x) {
    const Tensor length = norm(x, over);
    return select(equal(length, 0), zeros_like(x), x / length);
  })};
}

Tensors mean_variance_normalization(const Call& call) {
  Dims axes;
  if (!call.has("axes")) axes = {0, 2, 3};
  for (int64_t axis : call.integers("axes")) axes.push_back(call.axis_in(axis, call[0].rank()));
  const ReduceOptions over{.axes = axes, .keepdim = true};
  return {in_wide(call[0], [&](const Tensor& x) {
    const Tensor centred = x - mean(x, over);
    return centred / (sqrt(mean(centred * centred, over)) + 1e-9);
  })};
}

constexpr std::string_view reduces = "1 2@18 -> 1: axes@-17 keepdims noop_with_empty_axes@18";

const Operator reduction_rows[] = {
    {"ArgMax", "1 -> 1: axis keepdims select_last_index@12", arg_extreme<true>},
    {"ArgMin", "1 -> 1: axis keepdims select_last_index@12", arg_extreme<false>},
    {"CumProd", "@26 2 -> 1: exclusive reverse",
     [](const Call& call) -> Tensors { return prefixes(call, products, 1); }, "", 0b10},
    {"CumSum", "@11 2 -> 1: exclusive reverse",
     [](const Call& call) -> Tensors { return prefixes(call, sums, 0); }, "", 0b10},
    {"Hardmax", "1 -> 1: axis",
     [](const Call& call) -> Tensors { return along_axis(call, hardmax_along); }},
    {"LogSoftmax", "1 -> 1: axis",
     [](const Call& call) -> Tensors { return along_axis(call, log_softmax_along); }},
    {"LpNormalization", "1 -> 1: axis p", lp_normalization},
    {"MeanVarianceNormalization", "@9 1 -> 1: axes", mean_variance_normalization},
    {"ReduceL1", reduces, reduction<sum_of_magnitudes>, "", 0b10},
    {"ReduceL2", reduces, reduction<euclidean>, "", 0b10},
    {"ReduceLogSum", reduces, reduction<log_sum>, "", 0b10},
    {"ReduceLogSumExp", reduces, reduction<log_sum_exp>, "", 0b10},
    {"ReduceMax", reduces, reduction<greatest>, "", 0b10},
    {"ReduceMean", reduces, reduction<average>, "", 0b10},
    {"ReduceMin", reduces, reduction<least>, "", 0b10},
    {"ReduceProd", reduces, reduction<product>, "", 0b10},
    {"ReduceSum", "1 2@13 -> 1: axes@-12 keepdims noop_with_empty_axes@13", reduction<total, 13>,
     "", 0b10},
    {"ReduceSumSquare", reduces, reduction<sum_of_squares>, "", 0b10},
    {"Softmax", "1 -> 1: axis",
     [](const Call& call) -> Tensors { return along_axis(call, softmax_along); }},
};
}  // namespace

std::span<const Operator> reduction_operators() { return reduction_rows; }

}  // namespace weft::onnx
