// Defines the operations on numbers of few bits: integers of four, two in a byte, and scales for
// blocks of neighbours.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "weft/ops/apply.h"
#include "weft/ops/wide.h"

namespace weft {
namespace {
constexpr int64_t nibble_values = 16, least_nibble = -8, largest_nibble = 7;

Type unpacked_type(std::span<const Tensor> inputs, const Attrs&) {
  const Type& packed = inputs[0].type();
  WEFT_CHECK(info(packed.dtype).numbers == 2 && !packed.shape.empty(),
             "[unpack] x must be i4x2, with an axis. Got {}.", to_string(packed));
  Shape shape = packed.shape;
  shape[shape.size() - 1] *= 2;
  return {DType::i8, shape};
}

// Interprets four bits as two's complement.
Tensor signed_nibble(const Tensor& nibble) {
  return remainder(nibble + nibble_values / 2, nibble_values) - nibble_values / 2;
}

const OpDef& unpack_def = define({
    .name = "unpack",
    .doc = "x[.., M] of i4x2 -> [.., 2 M] of i8, the low half of each byte first",
    .infer = unpacked_type,
    .decompose = [](const Node& node) -> Tensor {
      const Tensor& x = node.inputs[0];
      Shape pairs = x.shape();
      pairs.push_back(2);
      const Tensor bytes = cast(broadcast_to(unsqueeze(cast(x, DType::u8), -1), pairs), DType::i32);
      const Tensor is_high = iota(pairs, pairs.size() - 1, DType::i32) > 0;
      const Tensor nibbles =
          select(is_high, floor_divide(bytes, nibble_values), remainder(bytes, nibble_values));
      return reshape(cast(signed_nibble(nibbles), DType::i8), node.type.shape);
    },
    .test = {.floats = false, .stored = true, .no_gradient = "yields integers"},
});

const OpDef& pack_def = define({
    .name = "pack",
    .doc = "x[.., 2 M] of i8 -> [.., M] of i4x2, saturating",
    .infer = [](std::span<const Tensor> inputs, const Attrs&) -> Type {
      Type type = inputs[0].type();
      WEFT_CHECK(type.dtype == DType::i8 && !type.shape.empty() && inputs[0].dim(-1) % 2 == 0,
                 "[pack] x must be i8, with a last axis of even extent. Got {}.", to_string(type));
      type.shape[type.shape.size() - 1] /= 2;
      return {DType::i4x2, type.shape};
    },
    .decompose = [](const Node& node) -> Tensor {
      const Tensor x = cast(clamp(node.inputs[0], least_nibble, largest_nibble), DType::i32);
      const auto every_other = [&](int64_t from) {
        return remainder(slice(x, -1, std::min(from, x.dim(-1)), x.dim(-1), 2), nibble_values);
      };
      const Tensor bytes = every_other(0) + every_other(1) * nibble_values;
      return cast(cast(bytes, DType::u8), DType::i4x2);
    },
    .test = {.low = -12, .high = 12, .floats = false, .no_gradient = "yields integers"},
});

// Returns x with one number per element: unpacked, if its type packs several.
Tensor numbers_of(const Tensor& x) { return info(x.dtype()).numbers > 1 ? unpack(x) : x; }
Shape shape_of_numbers(const Type& type) {
  Shape shape = type.shape;
  if (!shape.empty()) shape[shape.size() - 1] *= info(type.dtype).numbers;
  return shape;
}

// Repeats each block's element for all elements of the block, up to shape `shape`.
Tensor for_blocks(Tensor x, const Shape& shape) {
  for (int axis = 0; axis < shape.size(); ++axis)
    if (x.dim(axis) != shape[axis]) x = repeat(x, shape[axis] / x.dim(axis), axis);
  return x;
}
void check_blocks(const Tensor& blocks, const Shape& shape, std::string_view what,
                  std::string_view op) {
  bool divides = blocks.rank() == shape.size();
  for (int axis = 0; divides && axis < shape.size(); ++axis) {
    const int64_t extent = blocks.dim(axis);
    divides = extent == shape[axis] || (extent > 0 && shape[axis] % extent == 0);
  }
  WEFT_CHECK(divides, "[{}] each extent of {} must divide that of the numbers. Got {} for {}.", op,
             what, to_string(blocks.shape()), to_string(shape));
}
bool is_narrow_integer(DType dtype) {
  return is_integer(dtype) && !info(dtype).stored_only && info(dtype).bits <= 16;
}
bool is_scale(DType dtype) { return is_float(dtype) && !info(dtype).stored_only; }

// Range holds the least and the greatest number of a type that quantization rounds to.
struct Range {
  double low = 0, high = 0;
};
Range range_of(DType dtype) {
  if (is_float(dtype)) {
    const FloatFormat& format = info(dtype).format;
    const double high = format.has_infinities
                            ? std::ldexp(2 - std::ldexp(1.0, -format.fraction), format.bias())
                            : from_bits(to_bits(1e30, format), format);
    return {-high, high};
  }
  const double count = std::ldexp(1.0, whole_bits(dtype));
  return {has_sign(dtype) ? -count : 0, count - 1};
}

// Returns x / scale + zero before saturation; rounded to whole numbers if `dtype` is an integer.
Tensor unsaturated(const Tensor& x, const Tensor& scale, const Tensor& zero, DType dtype) {
  const Tensor wide = widen(x);
  Tensor numbers = wide / for_blocks(widen(cast(scale, wide.dtype())), wide.shape());
  if (is_float(dtype)) return numbers;
  const Tensor whole = round(numbers);
  return zero.defined() ? whole + for_blocks(cast(zero, wide.dtype()), wide.shape()) : whole;
}

Type affine_type(std::span<const Tensor> inputs, const Attrs& attrs) {
  const Tensor &x = inputs[0], &scale = inputs[1];
  const auto dtype = static_cast<DType>(attrs.integer("dtype"));
  WEFT_CHECK(is_scale(x.dtype()) && is_scale(scale.dtype()),
             "[quantize] x and the scale must be f64, f32, bf16 or f16. Got {} and {}.",
             name(x.dtype()), name(scale.dtype()));
  WEFT_CHECK(is_narrow_integer(dtype) || (info(dtype).stored_only && is_float(dtype)),
             "[quantize] numbers are of i8, u8, i16, u16 or an 8-bit float. Got {}.", name(dtype));
  check_blocks(scale, x.shape(), "the scale", "quantize");
  if (inputs.size() > 2) check_blocks(inputs[2], x.shape(), "the zero", "quantize");
  return {dtype, x.shape()};
}
Tensor zero_of(const Node& node) { return node.inputs.size() > 2 ? node.inputs[2] : Tensor(); }

const OpDef& quantize_affine_def = define({
    .name = "quantize_affine",
    .arity = -1,
    .doc = "round(x / scale) + zero, by blocks, saturating in the type of attr dtype",
    .infer = affine_type,
    .decompose = [](const Node& node) -> Tensor {
      const DType dtype = node.type.dtype;
      const Tensor numbers = unsaturated(node.inputs[0], node.inputs[1], zero_of(node), dtype);
      if (!is_float(dtype)) return cast(numbers, dtype);  // which saturates
      const Range range = range_of(dtype);
      return cast(clamp(numbers, range.low, range.high), dtype);
    },
    .test = {.no_gradient = "yields numbers that are only stored"},
});

const OpDef& fake_quantize_def = define({
    .name = "fake_quantize",
    .arity = -1,
    .doc = "dequantize(quantize_affine(x)), whose gradient passes where x did not saturate",
    .infer = [](std::span<const Tensor> inputs, const Attrs& attrs) -> Type {
      affine_type(inputs, attrs);
      return {inputs[1].dtype(), inputs[0].shape()};
    },
    .gradient = [](const Tensor& y, const Tensor& dy) -> Gradients {
      const auto dtype = static_cast<DType>(y->attrs.integer("dtype"));
      const Tensor& x = y->inputs[0];
      const Range range = range_of(dtype);
      const Tensor numbers = unsaturated(x, y->inputs[1], zero_of(*y.node()), dtype);
      const Tensor inside =
          logical_and(greater_equal(numbers, range.low), less_equal(numbers, range.high));
      Gradients all(y->inputs.size());
      all[0] = narrow_to(select(inside, dy, zeros_like(dy)), x.dtype());
      return all;
    },
    .decompose = [](const Node& node) -> Tensor {
      const auto dtype = static_cast<DType>(node.attrs.integer("dtype"));
      const Tensor zero = zero_of(node);
      const Tensor numbers = quantize_affine(node.inputs[0], node.inputs[1], zero, dtype);
      return dequantize(numbers, node.inputs[1], is_float(dtype) ? Tensor() : zero);
    },
    .test = {.differentiable = false},
});

const OpDef& dequantize_def = define({
    .name = "dequantize",
    .arity = -1,
    .doc = "(x - zero) scale, by blocks, in the type of the scale",
    .infer = [](std::span<const Tensor> inputs, const Attrs&) -> Type {
      const Tensor &x = inputs[0], &scale = inputs[1];
      const bool known =
          is_narrow_integer(x.dtype()) || info(x.dtype()).stored_only || x.dtype() == DType::i32;
      WEFT_CHECK(known,
                 "[dequantize] x must be i8, u8, i16, u16, i32, an 8-bit float or i4x2. Got {}.",
                 name(x.dtype()));
      WEFT_CHECK(is_scale(scale.dtype()),
                 "[dequantize] the scale must be f64, f32, bf16 or f16. Got {}.",
                 name(scale.dtype()));
      const Shape shape = shape_of_numbers(x.type());
      check_blocks(scale, shape, "the scale", "dequantize");
      if (inputs.size() > 2) check_blocks(inputs[2], shape, "the zero", "dequantize");
      return {scale.dtype(), shape};
    },
    .decompose = [](const Node& node) -> Tensor {
      const Shape& shape = node.type.shape;
      const Tensor scale = for_blocks(widen(node.inputs[1]), shape);
      Tensor x = cast(numbers_of(node.inputs[0]), scale.dtype());
      if (node.inputs.size() > 2) x = x - for_blocks(cast(node.inputs[2], scale.dtype()), shape);
      return narrow_to(x * scale, node.type.dtype);
    },
    .test = {.integers = true, .stored = true},
});

// Returns the greatest magnitude that a type has on both sides of 0.
double greatest(DType dtype) {
  return info(dtype).numbers > 1 ? largest_nibble : range_of(dtype).high;
}

std::vector<Tensor> affine_operands(const Arg& x, const Arg& scale, const Tensor& zero) {
  std::vector<Tensor> inputs{to_value(x, {}), to_value(scale, {})};
  if (zero.defined()) inputs.push_back(zero);
  return inputs;
}
}  // namespace

Tensor unpack(Arg x) {
  CallSite here(x.where);
  return make_node(unpack_def, {to_value(x, {})});
}
Tensor pack(Arg x) {
  CallSite here(x.where);
  return make_node(pack_def, {to_value(x, {})});
}

Tensor dequantize(Arg x, Arg scale, const Tensor& zero) {
  CallSite here(x.where);
  return make_node(dequantize_def, affine_operands(x, scale, zero));
}

Tensor quantize_affine(Arg x, Arg scale, const Tensor& zero, DType dtype) {
  CallSite here(x.where);
  return make_node(quantize_affine_def, affine_operands(x, scale, zero),
                   {{"dtype", static_cast<int64_t>(dtype)}});
}
Tensor fake_quantize(Arg x, Arg scale, const Tensor& zero, DType dtype) {
  CallSite here(x.where);
  return make_node(fake_quantize_def, affine_operands(x, scale, zero),
                   {{"dtype", static_cast<int64_t>(dtype)}});
}

Quantized quantize(Arg x, DType dtype, int64_t block) {
  CallSite here(x.where);
  const Tensor value = to_value(x, {});
  auto takes = [](DType type) { return type == DType::i8 || info(type).stored_only; };
  std::vector<std::string_view> known;
  for (int i = 0; i < dtype_count; ++i)
    if (const auto type = static_cast<DType>(i); takes(type)) known.push_back(name(type));
  WEFT_CHECK(takes(dtype), "[quantize] numbers are of {}. Got {}.", fmt::join(known, ", "),
             name(dtype));
  WEFT_CHECK(is_float(value.dtype()) && !info(value.dtype()).stored_only && value.rank() > 0,
             "[quantize] x must be f64, f32, bf16 or f16, with an axis. Got {}.",
             to_string(value.type()));
  const int64_t extent = value.dim(-1);
  if (block == 0) block = std::max<int64_t>(extent, 1);
  WEFT_CHECK(block > 0 && extent % block == 0,
             "[quantize] a block must divide the last axis. Got blocks of {} for {}.", block,
             to_string(value.shape()));
  Shape blocks = value.shape(), scales = value.shape();
  blocks[blocks.size() - 1] = extent / block;
  scales[scales.size() - 1] = extent / block;
  blocks.push_back(block);
  const Tensor wide = widen(value);
  const Tensor largest = reshape(max(abs(reshape(wide, blocks)), {.axes = {-1}}), scales);
  const Tensor scale = narrow_to(select(largest > 0, largest / greatest(dtype), 1), value.dtype());
  const Tensor numbers = wide / for_blocks(widen(scale), value.shape());
  if (is_float(dtype)) return {cast(numbers, dtype), scale};
  const double limit = greatest(dtype);
  const Tensor whole = cast(clamp(round(numbers), -limit, limit), DType::i8);
  return {info(dtype).numbers > 1 ? pack(whole) : whole, scale};
}
}  // namespace weft
