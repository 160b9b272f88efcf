// Declares the operations of weft, as users call them. Shapes in comments are row-major (the last
// axis is contiguous); broadcasting follows NumPy; scalars are weak (they take the tensor's dtype).
// Each family's definitions (type rule, gradient, cost, oracle, test row) are in the .cpp of its
// name. It is one header because it is the list of all operations; each section is a family.
#pragma once

#include <concepts>
#include <initializer_list>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "weft/ir/value.h"
#include "weft/ops/index.h"

namespace weft {

struct Buffer;

// ---- leaves (leaf.cpp); their nodes and errors name the line `where`
Tensor scalar(double value, DType dtype = DType::f32,
              std::source_location where = std::source_location::current());  // shape []
Tensor full(const Shape& shape, double value, DType dtype = DType::f32,
            std::source_location where = std::source_location::current());
Tensor zeros(const Shape& shape, DType dtype = DType::f32,
             std::source_location where = std::source_location::current());
Tensor ones(const Shape& shape, DType dtype = DType::f32,
            std::source_location where = std::source_location::current());
Tensor zeros_like(Arg x);
Tensor ones_like(Arg x);
// Returns 0 .. count - 1, shape [count].
Tensor arange(int64_t count, DType dtype = DType::i64,
              std::source_location where = std::source_location::current());
// Returns at each element its index along `axis`.
Tensor iota(const Shape& shape, int axis, DType dtype = DType::i64,
            std::source_location where = std::source_location::current());
Tensor constant(std::span<const float> elements, const Shape& shape,
                std::source_location where = std::source_location::current());
// Rounds the elements to dtype.
Tensor constant(std::span<const double> elements, const Shape& shape, DType dtype,
                std::source_location where = std::source_location::current());
Tensor from_buffer(std::shared_ptr<Buffer> buffer, Type type);  // row-major elements, shared
Tensor input(Type type, int index);                             // bound when the graph runs
Tensor variable_leaf(std::shared_ptr<VariableState> state);
// Reads the part of a variable that its storage has (VariableState::layout), of this shape.
Tensor variable_leaf(std::shared_ptr<VariableState> state, const Shape& part);

// ---- elementwise maths (unary.cpp)
Tensor neg(Arg x);
Tensor abs(Arg x);
Tensor sign(Arg x);
Tensor exp(Arg x);
Tensor exp2(Arg x);
Tensor expm1(Arg x);
Tensor log(Arg x);
Tensor log2(Arg x);
Tensor log10(Arg x);
Tensor log1p(Arg x);
Tensor sqrt(Arg x);
Tensor rsqrt(Arg x);
Tensor cbrt(Arg x);
Tensor sin(Arg x);
Tensor cos(Arg x);
Tensor tan(Arg x);
Tensor asin(Arg x);
Tensor acos(Arg x);
Tensor atan(Arg x);
Tensor sinh(Arg x);
Tensor cosh(Arg x);
Tensor tanh(Arg x);
Tensor asinh(Arg x);
Tensor acosh(Arg x);
Tensor atanh(Arg x);
Tensor erf(Arg x);
Tensor erfc(Arg x);
Tensor floor(Arg x);
Tensor ceil(Arg x);
Tensor round(Arg x);
Tensor trunc(Arg x);
Tensor reciprocal(Arg x);
Tensor square(Arg x);
Tensor logical_not(Arg x);
Tensor is_nan(Arg x);
Tensor is_finite(Arg x);
Tensor cast(Arg x, DType dtype);
Tensor stop_gradient(Arg x);

// ---- binary and ternary (binary.cpp)
Tensor add(Arg a, Arg b);
Tensor sub(Arg a, Arg b);
Tensor mul(Arg a, Arg b);
Tensor div(Arg a, Arg b);  // integers divide in float32
// The power of two integers is an integer, exact where it fits; a negative exponent gives 0 except
// for the bases 1 and -1. If either argument is a float, so is the result.
Tensor pow(Arg a, Arg b);
Tensor maximum(Arg a, Arg b);
Tensor minimum(Arg a, Arg b);
Tensor remainder(Arg a, Arg b);  // sign of the divisor, as Python's %
Tensor floor_divide(Arg a, Arg b);
Tensor atan2(Arg y, Arg x);
Tensor logaddexp(Arg a, Arg b);  // log(exp(a) + exp(b)), without overflow
Tensor equal(Arg a, Arg b);
Tensor not_equal(Arg a, Arg b);
Tensor less(Arg a, Arg b);
Tensor less_equal(Arg a, Arg b);
Tensor greater(Arg a, Arg b);
Tensor greater_equal(Arg a, Arg b);
Tensor logical_and(Arg a, Arg b);
Tensor logical_or(Arg a, Arg b);
Tensor logical_xor(Arg a, Arg b);
Tensor select(Arg condition, Arg a, Arg b);  // condition ? a : b
inline Tensor where(Arg condition, Arg a, Arg b) { return select(condition, a, b); }
Tensor clamp(Arg x, double low, double high);
// Rounds f32 to a neighbouring bf16 value; over noise uniform in [0, 1) the mean is x.
Tensor round_stochastic(Arg x, Arg noise);
// Number is a scalar operand, weak as in Arg.
template <class T>
concept Number = (std::integral<T> && !std::same_as<T, bool>) || std::floating_point<T>;
template <Number T>
Arg beside(T number, const Arg& other) {
  using Wide = std::conditional_t<std::integral<T>, int64_t, double>;
  return {static_cast<Wide>(number), other.where};
}
inline Tensor operator-(Arg x) { return neg(x); }
inline Tensor operator+(const Tensor& a, Arg b) { return add({a, b.where}, b); }
inline Tensor operator-(const Tensor& a, Arg b) { return sub({a, b.where}, b); }
inline Tensor operator*(const Tensor& a, Arg b) { return mul({a, b.where}, b); }
inline Tensor operator/(const Tensor& a, Arg b) { return div({a, b.where}, b); }
Tensor operator+(Number auto a, Arg b) { return add(beside(a, b), b); }
Tensor operator-(Number auto a, Arg b) { return sub(beside(a, b), b); }
Tensor operator*(Number auto a, Arg b) { return mul(beside(a, b), b); }
Tensor operator/(Number auto a, Arg b) { return div(beside(a, b), b); }
inline Tensor operator%(const Tensor& a, Arg b) { return remainder({a, b.where}, b); }
Tensor operator%(Number auto a, Arg b) { return remainder(beside(a, b), b); }
// Compound assignment rebinds the handle `a` to a new value, a = a + b. The old value, and results
// that were computed from it, do not change.
inline Tensor& operator+=(Tensor& a, Arg b) { return a = a + b; }
inline Tensor& operator-=(Tensor& a, Arg b) { return a = a - b; }
inline Tensor& operator*=(Tensor& a, Arg b) { return a = a * b; }
inline Tensor& operator/=(Tensor& a, Arg b) { return a = a / b; }
inline Tensor& operator%=(Tensor& a, Arg b) { return a = a % b; }
inline Tensor operator==(const Tensor& a, Arg b) { return equal({a, b.where}, b); }
inline Tensor operator!=(const Tensor& a, Arg b) { return not_equal({a, b.where}, b); }
inline Tensor operator<(const Tensor& a, Arg b) { return less({a, b.where}, b); }
inline Tensor operator<=(const Tensor& a, Arg b) { return less_equal({a, b.where}, b); }
inline Tensor operator>(const Tensor& a, Arg b) { return greater({a, b.where}, b); }
inline Tensor operator>=(const Tensor& a, Arg b) { return greater_equal({a, b.where}, b); }
// These take bool tensors, else throw Error(usage): PyTorch's are bitwise on other types.
Tensor operator&(const Tensor& a, Arg b);
Tensor operator|(const Tensor& a, Arg b);
inline Tensor operator!(Arg x) { return logical_not(x); }
// Short-circuiting would need the elements of `a` before `b` is evaluated.
Tensor operator&&(const Tensor& a, const Tensor& b) = delete;  // write a & b
Tensor operator||(const Tensor& a, const Tensor& b) = delete;  // write a | b

// ---- bits of integers (bitwise.cpp), else Error(usage)
Tensor bitwise_and(Arg a, Arg b);
Tensor bitwise_or(Arg a, Arg b);
Tensor bitwise_xor(Arg a, Arg b);
Tensor bitwise_not(Arg x);
// Shift by `count` bits, those of signed integers to the right with their sign. Counts that are
// negative, or at least the width, shift all bits out.
Tensor shift_left(Arg x, Arg count);
Tensor shift_right(Arg x, Arg count);
// Reads the bits of f32 as i32, of f64 as i64, and back; those of an integer as another integer of
// the same width, and those of bool as a byte.
Tensor bitcast(Arg x, DType dtype);

// ---- activations (activation.cpp): composites of the above
Tensor relu(Arg x);
Tensor relu6(Arg x);
Tensor leaky_relu(Arg x, double slope = 0.01);
Tensor elu(Arg x, double alpha = 1);
Tensor selu(Arg x);
Tensor celu(Arg x, double alpha = 1);
Tensor sigmoid(Arg x);
Tensor log_sigmoid(Arg x);
Tensor softplus(Arg x);
Tensor silu(Arg x);
Tensor mish(Arg x);
Tensor hardswish(Arg x);
Tensor hardsigmoid(Arg x);
Tensor hardtanh(Arg x, double low = -1, double high = 1);
Tensor softsign(Arg x);
Tensor gelu(Arg x);                // x * Phi(x), with erf
Tensor gelu_tanh(Arg x);           // the tanh form of GPT-2
Tensor glu(Arg x, int axis = -1);  // the first half along axis, times the sigmoid of the second

// ---- reductions (reduce.cpp). Without axes they reduce all of them; keepdim keeps reduced axes
// with extent 1. sum and prod of integers and bool are i64, which wraps; mean, variance and
// logsumexp of them are f32. Over no elements sum is 0, prod 1, any false, all true, mean NaN and
// logsumexp -inf; max, min, argmax, argmin, variance and stddev throw Error(usage).
struct ReduceOptions {
  Dims axes = {};
  bool keepdim = false;
};
Tensor sum(Arg x, ReduceOptions options = {});
Tensor mean(Arg x, ReduceOptions options = {});
Tensor prod(Arg x, ReduceOptions options = {});
Tensor max(Arg x, ReduceOptions options = {});
Tensor min(Arg x, ReduceOptions options = {});
Tensor variance(Arg x, ReduceOptions options = {}, double correction = 1);  // / (n - correction)
Tensor stddev(Arg x, ReduceOptions options = {}, double correction = 1);    // sqrt(variance)
// Returns (sum |x|^order)^(1 / order). Order infinity gives the greatest |x|, -infinity the least,
// 0 the count of non-zeros. The gradient at a norm of 0 is 0. Norms of integers and bool are f32.
Tensor norm(Arg x, ReduceOptions options = {}, double order = 2);
Tensor logsumexp(Arg x, ReduceOptions options = {});
// Return the index (i64) of the first greatest or least element along `axis`; without one, among
// all elements in row-major order.
Tensor argmax(Arg x, std::optional<int> axis = {}, bool keepdim = false);
Tensor argmin(Arg x, std::optional<int> axis = {}, bool keepdim = false);
Tensor any(Arg x, ReduceOptions options = {});
Tensor all(Arg x, ReduceOptions options = {});
template <class T>
concept AxisNumber = std::integral<T> && !std::same_as<T, bool>;
// AxisNumbers are one axis or several: sum(x, 1) and sum(x, {0, 1}) are sum(x, {.axes = {1}}) and
// sum(x, {.axes = {0, 1}}). A constructor of std::initializer_list would make the latter ambiguous
// to GCC 12, which ignores designators when it compares overloads.
struct AxisNumbers : Dims {
  AxisNumbers(AxisNumber auto... axes)
    requires(sizeof...(axes) > 0)
      : Dims{static_cast<int64_t>(axes)...} {}
};
inline Tensor sum(Arg x, const AxisNumbers& axes, bool keepdim = false) {
  return sum(x, ReduceOptions{.axes = axes, .keepdim = keepdim});
}
inline Tensor mean(Arg x, const AxisNumbers& axes, bool keepdim = false) {
  return mean(x, ReduceOptions{.axes = axes, .keepdim = keepdim});
}
inline Tensor prod(Arg x, const AxisNumbers& axes, bool keepdim = false) {
  return prod(x, ReduceOptions{.axes = axes, .keepdim = keepdim});
}
inline Tensor max(Arg x, const AxisNumbers& axes, bool keepdim = false) {
  return max(x, ReduceOptions{.axes = axes, .keepdim = keepdim});
}
inline Tensor min(Arg x, const AxisNumbers& axes, bool keepdim = false) {
  return min(x, ReduceOptions{.axes = axes, .keepdim = keepdim});
}
inline Tensor variance(Arg x, const AxisNumbers& axes, bool keepdim = false) {
  return variance(x, ReduceOptions{.axes = axes, .keepdim = keepdim});
}
inline Tensor stddev(Arg x, const AxisNumbers& axes, bool keepdim = false) {
  return stddev(x, ReduceOptions{.axes = axes, .keepdim = keepdim});
}
Tensor norm(Arg x, AxisNumber auto) = delete;  // write norm(x, {.axes = {1}}) or norm(x, {}, 1)
inline Tensor logsumexp(Arg x, const AxisNumbers& axes, bool keepdim = false) {
  return logsumexp(x, ReduceOptions{.axes = axes, .keepdim = keepdim});
}
inline Tensor any(Arg x, const AxisNumbers& axes, bool keepdim = false) {
  return any(x, ReduceOptions{.axes = axes, .keepdim = keepdim});
}
inline Tensor all(Arg x, const AxisNumbers& axes, bool keepdim = false) {
  return all(x, ReduceOptions{.axes = axes, .keepdim = keepdim});
}
// max(a, b) and min(a, b) of two tensors are maximum and minimum, as in PyTorch. A number as second
// argument is an axis: max(x, 0) reduces axis 0; write maximum(x, 0) for the other.
Tensor max(Arg a, const std::convertible_to<Tensor> auto& b) { return maximum(a, {b, a.where}); }
Tensor min(Arg a, const std::convertible_to<Tensor> auto& b) { return minimum(a, {b, a.where}); }
Tensor max(Arg x, std::floating_point auto) = delete;  // not an axis: write maximum(x, 0.5)
Tensor min(Arg x, std::floating_point auto) = delete;  // not an axis: write minimum(x, 0.5)

// Returns the inclusive prefix sums along `axis`; those of integers and bool are i64.
Tensor cumsum(Arg x, int axis);

// ---- movement (move.cpp)
Tensor reshape(Arg x, Shape shape);        // one extent may be -1
Tensor permute(Arg x, const Dims& order);  // result axis i is axis order[i] of x
Tensor transpose(Arg x, int a = -2, int b = -1);
Tensor broadcast_to(Arg x, const Shape& shape);
Tensor slice(Arg x, int axis, int64_t start, int64_t stop, int64_t step = 1);  // step > 0
Tensor flip(Arg x, const Dims& axes);
Tensor pad(Arg x, const Dims& low, const Dims& high, double value = 0);  // per axis, >= 0
Tensor concat(std::span<const Tensor> parts, int axis,
              std::source_location where = std::source_location::current());
Tensor stack(std::span<const Tensor> parts, int axis,
             std::source_location where = std::source_location::current());
inline Tensor concat(std::initializer_list<Tensor> parts, int axis,
                     std::source_location where = std::source_location::current()) {
  return concat(std::span(parts.begin(), parts.size()), axis, where);
}
inline Tensor stack(std::initializer_list<Tensor> parts, int axis,
                    std::source_location where = std::source_location::current()) {
  return stack(std::span(parts.begin(), parts.size()), axis, where);
}
// Returns x[.., start .. start + size, ..]. Unlike in slice(), `start` is a value, one integer that
// is known only when the graph runs. Elements outside of the axis read as 0.
Tensor slice_at(Arg x, int axis, Arg start, int64_t size);
// Returns x with x[.., start .. start + M, ..] replaced by updates[.., M, ..]; updates outside of
// the axis are dropped. Where `start` is integers [x.dim(0)], each row of the first axis, which is
// not `axis`, has its own. A step that assigns this to the variable that x was read from updates it
// in place.
Tensor update_at(Arg x, int axis, Arg start, Arg updates);
std::vector<Tensor> split(Arg x, int64_t size, int axis);  // the last part may be smaller
std::vector<Tensor> split(Arg x, std::span<const int64_t> sizes, int axis);  // sum: the extent
inline std::vector<Tensor> split(Arg x, std::initializer_list<int64_t> sizes, int axis) {
  return split(x, std::span(sizes.begin(), sizes.size()), axis);
}
Tensor squeeze(Arg x, int axis);
Tensor unsqueeze(Arg x, int axis);
Tensor flatten(Arg x, int first = 0, int last = -1);

// ---- arrangements (arrange.cpp)
// Pads with mirrored elements, the first and last not repeated; each amount is below the extent.
Tensor reflect_pad(Arg x, const Dims& low, const Dims& high);
// Repeats x counts[i] times along axis i (NumPy's tile, PyTorch's repeat). Shapes and counts align
// at their last axes, as in broadcasting.
Tensor tile(Arg x, const Dims& counts);
// Repeats each element `count` times (NumPy's repeat, PyTorch's repeat_interleave).
Tensor repeat(Arg x, int64_t count, int axis);
// Zero x[..., M, N] above (tril) or below (triu) a diagonal: 0 is the main one, 1 the one above it.
Tensor tril(Arg x, int64_t diagonal = 0);
Tensor triu(Arg x, int64_t diagonal = 0);

// ---- gather and scatter (gather.cpp). Indices are integers of any dtype, else Error(usage) is
// thrown. An index outside [0, N) is no error, as values are known only when the graph runs:
// gathers read zeros there (one_hot gives zeros), scatters skip it, and it passes no gradient back.
Tensor gather(Arg x, Arg indices,
              int axis = 0);  // x[..., indices[...], ...]: indices' shape replaces the axis
Tensor scatter_add(Arg into, Arg indices,
                   Arg updates);  // into[N, ...] += updates[indices.shape, ...] along axis 0
// Returns y[.., j, ..] = x[.., indices[.., j, ..], ..] for x[.., N, ..] and indices[.., M, ..],
// whose extents are equal except along `axis` (NumPy's take_along_axis, PyTorch's gather).
Tensor take_along_axis(Arg x, Arg indices, int axis = -1);
// Returns x with x[.., indices[.., j, ..], ..] replaced by values[.., j, ..], which broadcasts to
// the indices; the last of equal indices wins (NumPy's put_along_axis, PyTorch's scatter).
Tensor put_along_axis(Arg x, Arg indices, Arg values, int axis = -1);
// Returns into[N, ..] with row indices[i] replaced by updates[i, ..]. Shapes are those of
// scatter_add(), to which updates broadcast. Of equal indices the last one wins.
Tensor index_put(Arg into, Arg indices, Arg updates);
// Returns the row-major position in the indices where each of `rows` rows first occurs, or -1.
Tensor first_position(Arg indices, int64_t rows);
Tensor embedding(Arg indices, Arg weight);  // weight[V, C] -> [indices..., C]
Tensor one_hot(Arg indices, int64_t classes, DType dtype = DType::f32);

// ---- contractions (matmul.cpp, grouped_matmul.cpp, conv.cpp)
// [..., M, K] x [..., K, N]; batch axes broadcast; vectors as NumPy. Factors of two types are read
// as they are stored. The result has the wider float type, the type of the float beside an 8-bit
// integer (a quantized weight), float32 for two 8-bit floats, and int32 or int64 for two integers.
Tensor matmul(Arg a, Arg b);
Tensor linear(Arg x, Arg weight, const Tensor& bias = {});  // x[..., I] weight[O, I] bias[O]
// Multiplies rows that are sorted by group by the matrix of their group: of x[M, K], the first
// counts[0] rows by w[0], the next counts[1] by w[1], ... for w[E, K, N] and integers counts[E].
// Rows behind all groups give zeros; counts below 0 are 0, and those beyond the last row end there.
// Weights [E, N, K], as published, are passed as transpose(w), which copies nothing. Throws
// Error(usage) for other shapes, and for types that are not floating point or differ.
Tensor grouped_matmul(Arg x, Arg w, Arg counts);
struct ConvOptions {
  Dims stride = {}, padding = {}, dilation = {};  // per spatial axis; empty: 1, 0, 1
  int64_t groups = 1;
};
// Convolves x[N, C, spatial...] with weight[O, C / groups, kernel...] and adds bias[O]; there are
// one to three spatial axes. conv1d, conv2d and conv3d require their number of axes.
Tensor conv(Arg x, Arg weight, const Tensor& bias = {}, const ConvOptions& options = {});
Tensor conv1d(Arg x, Arg weight, const Tensor& bias = {}, const ConvOptions& options = {});
Tensor conv2d(Arg x, Arg weight, const Tensor& bias = {}, const ConvOptions& options = {});
Tensor conv3d(Arg x, Arg weight, const Tensor& bias = {}, const ConvOptions& options = {});
struct ConvTransposeOptions {
  Dims stride = {}, padding = {}, dilation = {};  // attributes of the convolution it transposes
  Dims output_padding = {};  // further elements at the end of each axis, below its stride; empty: 0
  int64_t groups = 1;
};
// Computes the transpose of a convolution, which is its input gradient: x[N, C, spatial...]
// weight[C, O / groups, kernel...] bias[O] -> [N, O, (extent - 1) stride - 2 padding + dilation
// (kernel - 1) + output_padding + 1...]; one to three spatial axes.
Tensor conv_transpose(Arg x, Arg weight, const Tensor& bias = {},
                      const ConvTransposeOptions& options = {});

// ---- quantization (quantize.cpp)
// x[..., M] of i4x2 -> [..., 2 M] of i8, in [-8, 7]; and back, where larger numbers saturate.
Tensor unpack(Arg x);
Tensor pack(Arg x);
// Returns (x - zero) scale in the type of the scale, for numbers of i8, u8, i16, u16, i32, an 8-bit
// float or i4x2. Each extent of scale and zero divides that of the (unpacked) numbers: one element
// serves a block of neighbours. Without a zero it is 0.
Tensor dequantize(Arg x, Arg scale, const Tensor& zero = {});
// Returns round(x / scale) + zero in `dtype`: i8, u8, i16, u16, or an 8-bit float, which has no
// zero and rounds by its format. Ties go to even, and numbers outside of the type saturate. Scale
// and zero have blocks as in dequantize(), the inverse of this.
Tensor quantize_affine(Arg x, Arg scale, const Tensor& zero, DType dtype);
// Returns dequantize(quantize_affine(x, scale, zero, dtype), scale, zero). The gradient of x is the
// straight-through estimate (Bengio et al. 2013): dy where x did not saturate, else 0. Scale and
// zero have no gradient.
Tensor fake_quantize(Arg x, Arg scale, const Tensor& zero, DType dtype);
// Quantized holds x[..., K] as numbers of i8, an 8-bit float or i4x2 (packed: K even), symmetric
// about 0, and one scale of x's type for each `block` neighbours along the last axis (a divisor of
// K; 0: the whole axis). The scale maps the greatest magnitude of a block to the greatest number of
// the type (127, 7, 448, 57344).
struct Quantized {
  Tensor numbers, scale;
};
Quantized quantize(Arg x, DType dtype, int64_t block = 0);

// ---- einsum (einsum.cpp)
// Sums products over named axes in NumPy's notation: einsum("bij,bjk->bik", {a, b}). Without "->"
// the result has the letters that occur once, in alphabetical order. A letter that one operand
// repeats takes its diagonal; "..." stands for axes that broadcast. Operands are contracted from
// left to right. Throws Error(usage) for a malformed equation and for extents that differ.
Tensor einsum(std::string_view equation, std::span<const Tensor> operands,
              std::source_location where = std::source_location::current());
inline Tensor einsum(std::string_view equation, std::initializer_list<Tensor> operands,
                     std::source_location where = std::source_location::current()) {
  return einsum(equation, std::span(operands.begin(), operands.size()), where);
}

// ---- pooling (pool.cpp), x[N, C, H, W] or x[N, C, D, H, W]
struct PoolOptions {
  Dims kernel, stride = {}, padding = {};  // empty stride: the kernel
  bool count_include_pad = true;
};
Tensor max_pool(Arg x, const PoolOptions& options);
Tensor avg_pool(Arg x, const PoolOptions& options);
inline Tensor max_pool2d(Arg x, const PoolOptions& options) { return max_pool(x, options); }
inline Tensor avg_pool2d(Arg x, const PoolOptions& options) { return avg_pool(x, options); }
inline Tensor max_pool3d(Arg x, const PoolOptions& options) { return max_pool(x, options); }
inline Tensor avg_pool3d(Arg x, const PoolOptions& options) { return avg_pool(x, options); }
Tensor global_avg_pool(Arg x);  // [N, C, H, W] -> [N, C, 1, 1]
// Computes means of size[i] cells along each spatial axis, which overlap where they do not divide
// it; there may be more cells than pixels.
Tensor adaptive_avg_pool(Arg x, const Dims& size);

// ---- resizing (interpolate.cpp)
enum class Interpolation { nearest, linear };
struct InterpolateOptions {
  Dims size;  // extents of the result, one per spatial axis
  Interpolation mode = Interpolation::nearest;
  bool align_corners = false;  // linear: corners map to corners, as in PyTorch
};
// Resizes x[N, C, spatial...] to [N, C, size...]; there are one to three spatial axes. Linear takes
// only floating point and is PyTorch's linear, bilinear and trilinear.
Tensor interpolate(Arg x, const InterpolateOptions& options);

// ---- sorting (sort.cpp). Sorts are stable; NaN comes last, as in NumPy (descending: first).
Tensor argsort(Arg x, int axis = -1, bool descending = false);  // i64
Tensor sort(Arg x, int axis = -1, bool descending = false);
struct TopK {
  Tensor values, indices;  // i64
};
// Returns the k greatest (least) elements along axis, sorted.
TopK topk(Arg x, int64_t k, int axis = -1, bool largest = true);

// ---- normalization and softmax (norm.cpp)
Tensor softmax(Arg x, int axis = -1);
Tensor log_softmax(Arg x, int axis = -1);
Tensor layer_norm(Arg x, const Tensor& weight = {}, const Tensor& bias = {},
                  double eps = 1e-5);  // last axis
Tensor rms_norm(Arg x, const Tensor& weight = {}, double eps = 1e-6);
Tensor group_norm(Arg x, int64_t groups, const Tensor& weight = {}, const Tensor& bias = {},
                  double eps = 1e-5);
struct BatchNorm {
  Tensor y, mean, variance;
};  // batch statistics: mean and biased variance, [C]
BatchNorm batch_norm_train(Arg x, const Tensor& weight, const Tensor& bias, double eps = 1e-5);
Tensor batch_norm_eval(Arg x, const Tensor& mean, const Tensor& variance, const Tensor& weight,
                       const Tensor& bias, double eps = 1e-5);

// ---- losses (loss.cpp), by PyTorch's formulae and, except for hinge_loss, its names. Prediction
// and target broadcast.
enum class Reduction {
  mean,  // over elements; where there are labels, over rows that are not ignored
  sum,
  none,  // one loss per element, or row
};
struct CrossEntropyOptions {
  int64_t ignore_index = -100;  // rows of this label count neither in the loss nor in its mean
  double label_smoothing = 0;   // in [0, 1]
  Reduction reduction = Reduction::mean;
};
// A label outside [0, C) other than ignore_index makes the loss and the gradient of its row NaN, so
// that training stops instead of learning from it.
Tensor cross_entropy(Arg logits, Arg labels,
                     const CrossEntropyOptions& options = {});  // [..., C], integer [...]
// Computes -log_probabilities[.., label], which is cross_entropy() for the result of log_softmax().
Tensor nll_loss(Arg log_probabilities, Arg labels, int64_t ignore_index = -100,
                Reduction reduction = Reduction::mean);
Tensor mse_loss(Arg prediction, Arg target, Reduction reduction = Reduction::mean);
Tensor l1_loss(Arg prediction, Arg target, Reduction reduction = Reduction::mean);
// Computes d^2 / 2 of the difference d where |d| < delta, else delta (|d| - delta / 2); delta > 0.
Tensor huber_loss(Arg prediction, Arg target, double delta = 1,
                  Reduction reduction = Reduction::mean);
// Computes huber_loss / beta; beta 0 gives l1_loss.
Tensor smooth_l1_loss(Arg prediction, Arg target, double beta = 1,
                      Reduction reduction = Reduction::mean);
// Computes target (log target - log_probabilities), or 0 where the target is 0. Reduction::mean is
// over elements, while the divergence is the sum over a row (PyTorch's "batchmean": sum / rows).
Tensor kl_div(Arg log_probabilities, Arg target, Reduction reduction = Reduction::mean);
// Takes probabilities in [0, 1], whose logarithms are clamped to at least -100.
Tensor binary_cross_entropy(Arg probability, Arg target, Reduction reduction = Reduction::mean);
Tensor binary_cross_entropy_with_logits(Arg logits, Arg target,
                                        Reduction reduction = Reduction::mean);
// Computes max(0, 1 - target prediction) for targets -1 and 1.
Tensor hinge_loss(Arg prediction, Arg target, Reduction reduction = Reduction::mean);

struct RandomKey {
  Tensor step;  // i64 scalar that changes from step to step
  int64_t seed = 0;
  int64_t stream = 0;  // one per call site
};

// ---- attention (attention.cpp)
struct AttentionOptions {
  bool causal = false;          // the query at position p attends to the keys up to p
  Tensor mask = {};             // bool (true: attend) or float (added), broadcast to [B, H, T, S]
  std::optional<double> scale;  // default 1 / sqrt(D)
  // Sliding window (Beltagy et al. 2020, "Longformer"), causal only: the query at position p
  // attends to the keys above p - window; 0: to all.
  int64_t window = 0;
  // Scores become softcap tanh(score / softcap) before the mask (Gemma 2); 0: they stay.
  double softcap = 0;
  // `start` is integers [B], causal only: the position of each row's first query, where the keys
  // are a cache that begins at position 0. Keys after the position of a query may be any finite
  // numbers. Empty: 0.
  Tensor start = {};
  double dropout = 0;  // dropout rate of the attention weights, drawn by `key`
  RandomKey key = {};
};
// Maps q[B, H, T, D], k[B, G, S, D] and v[B, G, S, E] to [B, H, T, E]; G divides H (grouped heads).
Tensor attention(Arg q, Arg k, Arg v, const AttentionOptions& options = {});

// ---- recurrence (recurrent.cpp): one layer over T time steps, in one direction, unrolled; states
// have H elements. `gates` are the projected inputs, the rows of `weight` in their order.
struct LstmStates {
  Tensor h, c;  // after each time step, [T, B, H]
};
// Takes gates[T, B, 4 H] (input, forget, cell, output; biases included), weight[4 H, H], and h and
// c[B, H] before the first time step.
LstmStates lstm(Arg gates, Arg weight, Arg h, Arg c);
// Takes gates[T, B, 3 H] (reset, update, new), weight[3 H, H] and bias[3 H] of the states, and h[B,
// H]; returns [T, B, H]. The states' bias is separate, as the reset gate scales it in the new gate.
Tensor gru(Arg gates, Arg weight, Arg bias, Arg h);

// ---- gradients (custom_gradient.cpp)
// Returns y with a gradient that the user defines: `rule` maps the gradient of the result to the
// gradients of `inputs`, in their order. The computation of y itself is not differentiated.
//   Tensor through = custom_gradient(round(x), {x}, [](const Tensor& dy) {
//     return std::vector{dy};
//   });
// Gradients of another number or type than the inputs' throw Error(usage) when they are taken.
Tensor custom_gradient(Arg y, std::span<const Tensor> inputs, GradientRule rule);
inline Tensor custom_gradient(Arg y, std::initializer_list<Tensor> inputs, GradientRule rule) {
  return custom_gradient(y, std::span(inputs.begin(), inputs.size()), std::move(rule));
}

// ---- random (random.cpp): Philox 4x32-10 of (seed, stream, step, element index). They throw
// Error(usage) for low > high, deviation < 0 and probabilities outside [0, 1].
Tensor uniform(const Shape& shape, const RandomKey& key, double low = 0, double high = 1,
               std::source_location where = std::source_location::current());  // f32, [low, high)
Tensor normal(const Shape& shape, const RandomKey& key, double mean = 0, double deviation = 1,
              std::source_location where = std::source_location::current());  // f32
Tensor bernoulli(const Shape& shape, const RandomKey& key, double probability,
                 std::source_location where = std::source_location::current());  // bool
Tensor permutation(int64_t count, const RandomKey& key,
                   std::source_location where = std::source_location::current());  // i64
Tensor dropout(Arg x, double probability, const RandomKey& key);

}  // namespace weft
