// Defines how the bytes of numbers in blocks, as files of llama.cpp hold them, are decomposed.
#include "weft/ops/blocks.h"

#include <cmath>
#include <limits>

#include "weft/base/numbers/block_format.h"
#include "weft/ir/axis_map.h"
#include "weft/ops/apply.h"
#include "weft/ops/wide.h"

namespace weft {
namespace {
const BlockFormat& format_of(const Attrs& attrs) { return block_format(attrs.text("format")); }

// ---- Bits of bytes, as float32: quotients by powers of two and their floors are exact, and
// processors compute them on vectors.

Tensor without_lower(const Tensor& byte, double unit) { return floor(byte * (1 / unit)); }
Tensor lower(const Tensor& byte, double unit) { return byte - without_lower(byte, unit) * unit; }

// Returns base ^ (2 ^ bit) multiplied over the bits of an integer below 2 ^ `bits`.
Tensor power(double base, const Tensor& exponent, int bits) {
  Tensor rest = exponent, product = ones_like(exponent);
  for (int bit = bits - 1; bit >= 0; --bit) {
    const auto unit = static_cast<double>(1 << bit);
    const Tensor has = rest >= unit;
    product = select(has, product * std::pow(base, unit), product);
    rest = select(has, rest - unit, rest);
  }
  return product;
}

// Returns the float16 of two bytes.
Tensor half_of(const Tensor& low, const Tensor& high) {
  constexpr double sign = 128, exponent_unit = 4, fractions = 1024;
  const Tensor magnitude = lower(high, sign);
  const Tensor exponent = without_lower(magnitude, exponent_unit);
  const Tensor fraction = lower(magnitude, exponent_unit) * 256 + low;
  const Tensor normal = (fraction + fractions) * power(2, exponent, 5) * 0x1p-25;
  constexpr double infinity = std::numeric_limits<double>::infinity();
  const Tensor beyond = select(fraction > 0, std::numeric_limits<double>::quiet_NaN(),
                               full(fraction.shape(), infinity));
  const Tensor number =
      select(exponent > 30, beyond, select(exponent > 0, normal, fraction * 0x1p-24));
  return select(high >= sign, -number, number);
}

// Returns the number that a byte is in two's complement.
Tensor with_sign(const Tensor& byte) { return select(byte >= 128, byte - 256, byte); }

// Blocks reads fields of blocks [R, bytes] by their offset in bytes.
struct Blocks {
  Tensor bytes;

  int64_t count() const { return bytes.dim(0); }
  // Returns float32 [R, ..shape] of consecutive bytes.
  Tensor at(int64_t from, const Dims& shape) const {
    Shape all{count()};
    int64_t each = 1;
    for (int64_t extent : shape) all.push_back(extent), each *= extent;
    return reshape(cast(slice(bytes, -1, from, from + each), DType::f32), all);
  }
  // Returns [R, 1, ..] of rank `rank`.
  Tensor half(int64_t from, int rank) const {
    Shape shape{count()};
    while (shape.size() < rank) shape.push_back(1);
    return reshape(half_of(at(from, {1}), at(from + 1, {1})), shape);
  }
  // Returns [R, 2 * bytes]: the low nibbles of each group of `each` bytes, then its high ones.
  Tensor nibbles(int64_t from, int64_t groups, int64_t each) const {
    const Shape both{count(), groups, 2, each};
    const Tensor byte = broadcast_to(at(from, {groups, 1, each}), both);
    const Tensor is_high = iota(both, 2, DType::f32) > 0;
    return reshape(select(is_high, without_lower(byte, 16), lower(byte, 16)),
                   {count(), groups * 2 * each});
  }
};

// Returns the digits of each byte in base `base` along `axis`, the lowest first. Bytes
// [R, .., 1, ..] become `shape`, whose extent along the axis is the number of digits.
Tensor digits(const Tensor& byte, const Shape& shape, int axis, double base, int bits) {
  const Tensor place = iota(shape, axis, DType::f32);
  return lower(floor(broadcast_to(byte, shape) * power(1 / base, place, bits)), base);
}

Tensor of_bytes(const Blocks& blocks) { return blocks.half(0, 2) * with_sign(blocks.at(2, {32})); }

Tensor of_nibbles(const Blocks& blocks, const BlockFormat& format) {
  const bool fifths = format.bits == 5, has_least = format.has_least;
  const Tensor d = blocks.half(0, 2);
  const int64_t bits_at = has_least ? 4 : 2;
  Tensor q = blocks.nibbles(bits_at + (fifths ? 4 : 0), 1, 16);
  if (fifths) {
    const Tensor bits =
        digits(blocks.at(bits_at, {4, 1}), {blocks.count(), 4, 8}, 2, 2, /*bits=*/3);
    q = q + reshape(bits, q.shape()) * 16;
  }
  return has_least ? d * q + blocks.half(2, 2) : d * (q - (fifths ? 16 : 8));
}

// Returns the numbers of Q4_K, or with `fifths` of Q5_K: see scale_and_min() in
// weft/base/numbers/block_format.cpp.
Tensor of_lines(const Blocks& blocks, bool fifths) {
  const int64_t rows = blocks.count();
  const Shape halves{rows, 2, 4}, groups{rows, 8, 1};
  const Tensor is_last = iota(halves, 1, DType::f32) > 0;
  const Tensor last = blocks.at(12, {1, 4});
  const auto sixes = [&](int64_t from, const Tensor& lowest) {
    const Tensor byte = blocks.at(from, {1, 4});
    return reshape(select(is_last, broadcast_to(lowest + without_lower(byte, 64) * 16, halves),
                          broadcast_to(lower(byte, 64), halves)),
                   groups);
  };
  const Tensor scale = blocks.half(0, 3) * sixes(4, lower(last, 16));
  const Tensor min = blocks.half(2, 3) * sixes(8, without_lower(last, 16));
  Tensor q = reshape(blocks.nibbles(fifths ? 48 : 16, 4, 32), {rows, 8, 32});
  if (fifths) q = q + digits(blocks.at(16, {1, 32}), {rows, 8, 32}, 1, 2, /*bits=*/3) * 16;
  return scale * q - min;
}

Tensor of_sixes(const Blocks& blocks) {
  const int64_t rows = blocks.count();
  const Tensor upper =
      digits(blocks.at(128, {2, 1, 32}), {rows, 2, 4, 32}, 2, /*base=*/4, /*bits=*/2);
  const Tensor lower = reshape(blocks.nibbles(0, 2, 64), {rows, 16, 16});
  const Tensor scale = blocks.half(208, 3) * with_sign(blocks.at(192, {16, 1}));
  return scale * (lower + reshape(upper, {rows, 16, 16}) * 16 - 32);
}

Tensor numbers_of(const Tensor& x, const BlockFormat& format) {
  const int64_t blocks = x.elements() / format.bytes;
  const Blocks rows{reshape(x, {blocks, format.bytes})};
  switch (format.layout) {
    case BlockLayout::bytes:
      return of_bytes(rows);
    case BlockLayout::nibbles:
      return of_nibbles(rows, format);
    case BlockLayout::lines:
      return of_lines(rows, format.bits == 5);
    case BlockLayout::sixes:
      return of_sixes(rows);
  }
  WEFT_ASSERT(false, "no layout of blocks: {}", static_cast<int>(format.layout));
}

void check_blocks(const Tensor& x, const BlockFormat& format, int least_rank, std::string_view op) {
  WEFT_CHECK(x.dtype() == DType::u8 && x.rank() >= least_rank && x.dim(-1) == format.bytes,
             "[{}] blocks of {} must be u8[.., blocks, {}]. Got {}.", op, format.name, format.bytes,
             to_string(x.type()));
}
void check_float(DType dtype, std::string_view op, std::string_view what) {
  WEFT_CHECK(is_float(dtype) && !info(dtype).stored_only,
             "[{}] {} must be f64, f32, bf16 or f16. Got {}.", op, what, name(dtype));
}

// Rounds every 32 neighbours of a row to integers in [-127, 127] times a scale, like Q8_0 but with
// float32 scales; returns float32. Neighbours become NaN if one of them is not finite, and zeros if
// all are below 2^-100, as their scale might have no inverse.
Tensor rounded_to_int8(const Tensor& x) {
  constexpr int64_t neighbours = 32;
  constexpr double most_quant = 127, least_magnitude = 0x1p-100;
  Shape shape = x.shape();
  shape[shape.size() - 1] /= neighbours;
  shape.push_back(neighbours);
  const Tensor each = reshape(cast(x, DType::f32), shape);
  const Tensor most = max(abs(each), {-1}, /*keepdim=*/true);
  const Tensor inverse = select(most > least_magnitude, most_quant / most, zeros_like(most));
  return reshape(round(each * inverse) * (most / most_quant), x.shape());
}

// ---- products

Type product_type(std::span<const Tensor> inputs, const Attrs& attrs) {
  const Tensor &x = inputs[0], &w = inputs[1];
  const BlockFormat& format = format_of(attrs);
  check_float(x.dtype(), "matmul_blocks", "x");
  check_blocks(w, format, 3, "matmul_blocks");
  WEFT_CHECK(x.rank() >= 2 && w.rank() == 3 && x.dim(-1) == w.dim(1) * format.numbers,
             "[matmul_blocks] x must be [.., M, {}], for w {} of {}. Got {}.",
             w.dim(1) * format.numbers, to_string(w.shape()), format.name, to_string(x.shape()));
  Shape shape = x.shape();
  shape[shape.size() - 1] = w.dim(0);
  return {x.dtype(), shape};
}

Type grouped_type(std::span<const Tensor> inputs, const Attrs& attrs) {
  const Tensor &x = inputs[0], &w = inputs[1], &counts = inputs[2];
  const BlockFormat& format = format_of(attrs);
  check_float(x.dtype(), "matmul_blocks", "x");
  check_blocks(w, format, 3, "matmul_blocks");
  WEFT_CHECK(is_integer(counts.dtype()) && counts.rank() == 1 && w.rank() == 4 &&
                 w.dim(0) == counts.dim(0),
             "[matmul_blocks] counts must be integers [E], for w[E, N, B, bytes]. Got {} and {}.",
             to_string(counts.type()), to_string(w.shape()));
  WEFT_CHECK(x.rank() == 2 && x.dim(1) == w.dim(2) * format.numbers,
             "[matmul_blocks] x must be [M, {}], for groups with w {} of {}. Got {}.",
             w.dim(2) * format.numbers, to_string(w.shape()), format.name, to_string(x.shape()));
  return {x.dtype(), {x.dim(0), w.dim(1)}};
}

// Returns the product of x and the numbers of the blocks, in the dtype of x.
Tensor product_of(const Node& node, const Tensor& x) {
  const Tensor numbers = dequantize_blocks(node.inputs[1], node.attrs.text("format"), x.dtype());
  const bool is_grouped = node.inputs.size() == 3;
  return narrow_to(is_grouped ? grouped_matmul(x, transpose(numbers), node.inputs[2])
                              : matmul(x, transpose(numbers)),
                   node.type.dtype);
}
Tensor product_of_numbers(const Node& node) { return product_of(node, node.inputs[0]); }
Tensor product_of_rounded(const Node& node) {
  const Tensor& x = node.inputs[0];
  return product_of(node, narrow_to(rounded_to_int8(x), widen(x).dtype()));
}

// The gradient ignores the rounding of the activations: the straight-through estimator (Bengio et
// al. 2013).
Gradients product_gradient(const Tensor& y, const Tensor& dy) {
  const Tensor &x = y->inputs[0], &w = y->inputs[1];
  const Tensor numbers = dequantize_blocks(w, y->attrs.text("format"), x.dtype());
  const Tensor narrow = narrow_to(dy, x.dtype());
  if (y->inputs.size() == 3) return {grouped_matmul(narrow, numbers, y->inputs[2]), {}, {}};
  return {matmul(narrow, numbers), Tensor()};
}

AxisMap product_axes(const Node& node) {
  AxisMap map(node);
  const Shape &x = node.inputs[0].shape(), &w = node.inputs[1].shape();
  const int n = x.size() - 1;
  constexpr int result = AxisMap::of_result;
  for (int axis = 0; axis < n; ++axis)
    map.relate(node, {.size = x[axis]}, {{0, axis}, {result, axis}});
  map.relate(node, {.size = w[0]}, {{1, 0}, {result, n}});
  // The sum over blocks can be split; the sum over the numbers of one block cannot.
  map.relate(node, {.size = w[1], .relation = Relation::reduced}, {{0, n}, {1, 1}});
  map.relate(node, {.size = format_of(node.attrs).numbers, .relation = Relation::whole}, {{0, n}});
  map.relate(node, {.size = w[2], .relation = Relation::whole}, {{1, 2}});
  return map;
}

// Rows are positional, as counts begin at the first row of the whole tensor.
AxisMap grouped_axes(const Node& node) {
  AxisMap map(node);
  const Shape &x = node.inputs[0].shape(), &w = node.inputs[1].shape();
  constexpr int result = AxisMap::of_result;
  map.relate(node, {.size = x[0], .positional = true}, {{result, 0}, {0, 0}});
  map.relate(node, {.size = w[1]}, {{result, 1}, {1, 1}});
  map.relate(node, {.size = x[1], .relation = Relation::whole}, {{0, 1}});
  for (int axis : {2, 3})
    map.relate(node, {.size = w[axis], .relation = Relation::whole}, {{1, axis}});
  map.relate(node, {.size = w[0], .relation = Relation::whole}, {{1, 0}, {2, 0}});
  return map;
}

// ---- definitions

const OpDef& dequantize_blocks_def = define({
    .name = "dequantize_blocks",
    .doc = "u8 [.., B, bytes] of a block format -> [.., B * numbers]",
    .infer = [](std::span<const Tensor> inputs, const Attrs& attrs) -> Type {
      const BlockFormat& format = format_of(attrs);
      check_blocks(inputs[0], format, 2, "dequantize_blocks");
      const Shape& x = inputs[0].shape();
      Shape shape;
      for (int axis = 0; axis < x.size() - 1; ++axis) shape.push_back(x[axis]);
      shape[shape.size() - 1] *= format.numbers;
      return {static_cast<DType>(attrs.integer("dtype")), shape};
    },
    .decompose = [](const Node& node) -> Tensor {
      const Tensor numbers = numbers_of(node.inputs[0], format_of(node.attrs));
      return reshape(narrow_to(numbers, node.type.dtype), node.type.shape);
    },
    .axes =
        [](const Node& node) {
          AxisMap map(node);
          const Shape& x = node.inputs[0].shape();
          const int blocks = x.size() - 2;
          constexpr int result = AxisMap::of_result;
          for (int axis = 0; axis <= blocks; ++axis) {
            map.relate(node, {.size = x[axis]}, {{0, axis}, {result, axis}});
          }
          map.relate(node, {.size = x[blocks + 1], .relation = Relation::whole}, {{0, blocks + 1}});
          map.relate(node, {.size = format_of(node.attrs).numbers, .relation = Relation::whole},
                     {{result, blocks}});
          return map;
        },
    .test = {.low = 0, .high = 63, .floats = false},
});

const OpDef& matmul_blocks_def = define({
    .name = "matmul_blocks",
    .arity = 2,
    .doc =
        "x [.., M, K] times the transpose of w, u8 [N, B, bytes] of a block format -> [.., M, N]",
    .infer = product_type,
    .gradient = product_gradient,
    .decompose = product_of_numbers,
    .family = OpFamily::product,
    .axes = product_axes,
    .test = {.second_low = 0, .second_high = 63},
});

const OpDef& matmul_blocks_int8_def = define({
    .name = "matmul_blocks_int8",
    .arity = 2,
    .doc = "matmul_blocks of x rounded to int8, 32 neighbours of a row by a scale of their own",
    .infer = product_type,
    .gradient = product_gradient,
    .decompose = product_of_rounded,
    .family = OpFamily::product,
    .axes = product_axes,
    .test = {.second_low = 0, .second_high = 63, .differentiable = false},
});

const OpDef& grouped_matmul_blocks_def = define({
    .name = "grouped_matmul_blocks",
    .arity = 3,
    .doc = "matmul_blocks of x [M, K], whose rows are sorted by group, by w, u8 [E, N, B, bytes], "
           "counts[E] rows each",
    .infer = grouped_type,
    .gradient = product_gradient,
    .decompose = product_of_numbers,
    .family = OpFamily::grouped_product,
    .flops = product_flops,
    .axes = grouped_axes,
    .test = {.second_low = 0, .second_high = 63},
});

const OpDef& grouped_matmul_blocks_int8_def = define({
    .name = "grouped_matmul_blocks_int8",
    .arity = 3,
    .doc = "grouped_matmul_blocks of x rounded to int8 as in matmul_blocks_int8",
    .infer = grouped_type,
    .gradient = product_gradient,
    .decompose = product_of_rounded,
    .family = OpFamily::grouped_product,
    .flops = product_flops,
    .axes = grouped_axes,
    .test = {.second_low = 0, .second_high = 63, .differentiable = false},
});
}  // namespace

Tensor dequantize_blocks(Arg x, std::string_view format, DType dtype) {
  CallSite here(x.where);
  check_float(dtype, "dequantize_blocks", "numbers");
  return make_node(
      dequantize_blocks_def, {to_value(x, {})},
      {{"format", std::string(block_format(format).name)}, {"dtype", static_cast<int64_t>(dtype)}});
}

Tensor matmul_blocks(Arg x, Arg w, std::string_view format, const MatmulBlocksOptions& options) {
  CallSite here(x.where);
  WEFT_CHECK(options.activations == DType::f32 || options.activations == DType::i8,
             "[matmul_blocks] activations must be f32 or i8. Got {}.", name(options.activations));
  const bool rounds = options.activations == DType::i8;
  const Tensor value = to_value(x, {}), blocks = to_value(w, {});
  const Attrs attrs{{"format", std::string(block_format(format).name)}};
  if (options.counts.defined())
    return make_node(rounds ? grouped_matmul_blocks_int8_def : grouped_matmul_blocks_def,
                     {value, blocks, options.counts}, attrs);
  const bool is_vector = value.rank() == 1;
  const Tensor y = make_node(rounds ? matmul_blocks_int8_def : matmul_blocks_def,
                             {is_vector ? unsqueeze(value, 0) : value, blocks}, attrs);
  return is_vector ? squeeze(y, 0) : y;
}
}  // namespace weft
