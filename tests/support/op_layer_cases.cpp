// Draws uses of the operations that layers are made of: products, convolutions, pooling, numbers of
// few bits, softmax and normalization, sorting, attention and recurrent layers.
#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "tests/support/op_draw.h"
#include "weft/base/numbers/block_format.h"

namespace weft::testing {
namespace {
// ---- contractions and windows
Value matmul_case(const Draw& draw) {
  Shape a = draw.source.shape(0, 2), b = a;
  for (int i = 0; i < a.size(); ++i) {
    if (draw.random.chance(0.3))
      a[i] = 1;
    else if (draw.random.chance(0.3))
      b[i] = 1;
  }
  int64_t m = draw.extent(), k = draw.extent(), n = draw.extent();
  a.push_back(m), a.push_back(k), b.push_back(k), b.push_back(n);
  return draw.make({draw.operand(a), draw.operand(b)});
}

Value matmul_add_case(const Draw& draw) {
  Value product = matmul_case(Draw{op("matmul"), draw.dtype, draw.source, draw.random});
  Type sums = product.type();
  if (is_float(sums.dtype)) sums.dtype = accumulator(sums.dtype);
  return draw.make({draw.operand(sums), product->inputs[0], product->inputs[1]});
}

// Draws one factor of the drawn type, the other of any that there is a product with.
Value matmul_mixed_case(const Draw& draw) {
  const Value product = matmul_case(Draw{op("matmul_mixed"), DType::i8, draw.source, draw.random});
  std::vector<DType> others;
  for (int i = 0; i < dtype_count; ++i) {
    const DTypeInfo& of = info(static_cast<DType>(i));
    const bool exact = is_float(draw.dtype) ? of.kind == NumberKind::floating || of.bits == 8
                                            : of.kind != NumberKind::floating || of.bits > 8;
    const bool small =
        is_float(draw.dtype) || info(draw.dtype).bits == 8 || of.kind != NumberKind::floating;
    // In float64, the other factor is the one that finite differences change.
    if (draw.dtype == DType::f64 && (of.bits != 8 || of.stored_only)) continue;
    if (exact && small && of.numbers == 1 && of.kind != NumberKind::boolean)
      others.push_back(static_cast<DType>(i));
  }
  std::vector<DType> types{draw.dtype, draw.random.pick(others)};
  if (draw.random.chance(0.5)) std::swap(types[0], types[1]);
  const auto factor = [&](size_t i) {
    return draw.operand({types[i], product->inputs[i].shape()});
  };
  return draw.make({factor(0), factor(1)});
}

// Draws the counts of groups that share `rows` rows, so that some cases leave rows over, some have
// more than there are, and some have a count below zero.
Value group_counts(const Draw& draw, int64_t rows) {
  const int64_t groups = draw.many(1, 4);
  const DType type = draw.random.chance(0.5) ? DType::i64 : DType::i32;
  const double most = std::ceil(2.0 * static_cast<double>(rows) / static_cast<double>(groups + 1));
  return draw.source.operand({type, {groups}}, draw.random.chance(0.2) ? -1 : 0, most);
}
Value grouped_matmul_case(const Draw& draw) {
  const int64_t m = draw.extent(), k = draw.extent(), n = draw.extent();
  const Value counts = group_counts(draw, m);
  return draw.make({draw.operand(Shape{m, k}), draw.operand(Shape{counts.dim(0), k, n}), counts});
}
Value grouped_weight_gradient_case(const Draw& draw) {
  const int64_t m = draw.extent(), k = draw.extent(), n = draw.extent();
  const Value counts = group_counts(draw, m);
  return draw.make({draw.operand(Shape{m, k}), draw.operand(Shape{m, n}), counts});
}

// ---- numbers of few bits
Value unpack_case(const Draw& draw) { return draw.make({draw.operand(draw.shape(1))}); }
Value pack_case(const Draw& draw) {
  Shape shape = draw.shape(1);
  shape[shape.size() - 1] *= 2;
  return draw.make({draw.operand(shape)});
}
// Scales are powers of two: quotients are exact, and no rounding is near a tie but those that are
// one.
Value quantize_case(const Draw& draw) {
  const Shape shape = draw.shape(1);
  Shape blocks = shape;
  for (int axis = 0; axis < shape.size(); ++axis)
    if (draw.random.chance(0.5) && shape[axis] > 0) blocks[axis] = 1;
  const DType numbers = draw.random.pick<DType>({DType::i8, DType::u8, DType::i16, DType::u16});
  std::vector<Value> inputs{draw.operand(shape), exp2(floor(draw.operand(blocks) - 4))};
  if (draw.random.chance(0.5)) inputs.push_back(draw.operand({numbers, blocks}));
  return draw.make(inputs, {{"dtype", static_cast<int64_t>(numbers)}});
}
Value dequantize_case(const Draw& draw) {
  Shape shape = draw.shape(1), blocks = shape;
  for (int axis = 0; axis < shape.size(); ++axis) {
    if (draw.random.chance(0.5)) continue;
    const int64_t block = draw.random.pick<int64_t>({1, 2, 3});
    if (shape[axis] % block == 0) blocks[axis] = shape[axis] / block;
  }
  const bool is_number = info(draw.dtype).bits == 8 || is_integer(draw.dtype);
  const DType numbers = is_number ? draw.dtype : DType::i8;
  const Value x = draw.operand({numbers, shape});
  blocks[shape.size() - 1] *= info(numbers).numbers;
  const DType scale =
      numbers == draw.dtype
          ? draw.random.pick<DType>({DType::f32, DType::f64, DType::bf16, DType::f16})
          : draw.dtype;
  std::vector<Value> inputs{x, draw.operand({scale, blocks})};
  if (draw.random.chance(0.5)) inputs.push_back(draw.operand({DType::i8, blocks}));
  return draw.make(inputs);
}
// Bytes up to 63 make float16 scales below 2, so that sums of any type stay finite.
const BlockFormat& some_format(const Draw& draw) {
  const std::span<const BlockFormat> all = block_formats();
  return all[static_cast<size_t>(draw.random.below(std::ssize(all)))];
}
Value some_blocks(const Draw& draw, Shape leading, const BlockFormat& format) {
  leading.push_back(draw.many(1, 2));
  leading.push_back(format.bytes);
  return draw.source.operand({DType::u8, leading}, 0, 63);
}
Value dequantize_blocks_case(const Draw& draw) {
  const BlockFormat& format = some_format(draw);
  const DType dtype = draw.random.pick<DType>({DType::f32, DType::f64, DType::bf16, DType::f16});
  return draw.make({some_blocks(draw, draw.source.shape(0, 2), format)},
                   {{"format", std::string(format.name)}, {"dtype", static_cast<int64_t>(dtype)}});
}
Value matmul_blocks_case(const Draw& draw) {
  const BlockFormat& format = some_format(draw);
  const Value w = some_blocks(draw, {draw.few()}, format);
  Shape x = draw.source.shape(0, 1);
  x.push_back(draw.few());
  x.push_back(w.dim(1) * format.numbers);
  return draw.make({draw.operand(x), w}, {{"format", std::string(format.name)}});
}
Value grouped_matmul_blocks_case(const Draw& draw) {
  const BlockFormat& format = some_format(draw);
  const int64_t m = draw.extent();
  const Value counts = group_counts(draw, m);
  const Value w = some_blocks(draw, {counts.dim(0), draw.few()}, format);
  return draw.make({draw.operand(Shape{m, w.dim(2) * format.numbers}), w, counts},
                   {{"format", std::string(format.name)}});
}

// A Convolution has a convolution's attributes and shapes.
struct Convolution {
  Shape x, weight, y;
  Dims stride, padding, dilation;
  int64_t groups;
  explicit Convolution(const Draw& draw) {
    Random& random = draw.random;
    auto few = [&](int64_t low, int64_t high) {
      return Dims{random.between(low, high), random.between(low, high)};
    };
    groups = random.pick<int64_t>({1, 1, 2, 3});
    stride = few(1, 3), padding = few(0, 2), dilation = few(1, 2);
    x = {draw.many(1, 2), groups * draw.few(), 0, 0};
    weight = {groups * draw.few(), x[1] / groups, random.between(1, 3), random.between(1, 3)};
    y = {x[0], weight[0], 0, 0};
    for (int i = 0; i < 2; ++i) {
      int64_t reach = dilation[i] * (weight[2 + i] - 1) + 1;
      x[2 + i] = std::max<int64_t>(1, reach - 2 * padding[i]) + random.below(4);
      y[2 + i] = (x[2 + i] + 2 * padding[i] - reach) / stride[i] + 1;
    }
  }
};
Value conv_case(const Draw& draw) {
  Convolution c(draw);
  return draw.make({draw.operand(c.x), draw.operand(c.weight)}, {{"stride", c.stride},
                                                                 {"padding", c.padding},
                                                                 {"dilation", c.dilation},
                                                                 {"groups", c.groups}});
}
// Each operand is of i8 or u8, whatever type was drawn.
Value conv_mixed_case(const Draw& draw) {
  Convolution c(draw);
  const auto byte = [&] { return draw.random.chance(0.5) ? DType::i8 : DType::u8; };
  const Value x = draw.operand({byte(), c.x}), weight = draw.operand({byte(), c.weight});
  return draw.make({x, weight}, {{"stride", c.stride},
                                 {"padding", c.padding},
                                 {"dilation", c.dilation},
                                 {"groups", c.groups}});
}
Value conv_input_gradient_case(const Draw& draw) {
  Convolution c(draw);
  return draw.make({draw.operand(c.y), draw.operand(c.weight)}, {{"input_shape", c.x},
                                                                 {"stride", c.stride},
                                                                 {"padding", c.padding},
                                                                 {"dilation", c.dilation},
                                                                 {"groups", c.groups}});
}
Value conv_weight_gradient_case(const Draw& draw) {
  Convolution c(draw);
  return draw.make({draw.operand(c.x), draw.operand(c.y)}, {{"weight_shape", c.weight},
                                                            {"stride", c.stride},
                                                            {"padding", c.padding},
                                                            {"dilation", c.dilation},
                                                            {"groups", c.groups}});
}

struct Windows {
  Dims kernel, stride, padding;
  Shape x, y;
  explicit Windows(const Draw& draw) : x{draw.many(1, 2), draw.few()}, y(x) {
    Random& random = draw.random;
    for (int i = 0; i < 2; ++i) {
      kernel.push_back(random.between(1, 3));
      stride.push_back(random.between(1, 3));
      padding.push_back(random.below(kernel[i] / 2 + 1));
      x.push_back(kernel[i] + random.below(4));
      y.push_back((x[2 + i] + 2 * padding[i] - kernel[i]) / stride[i] + 1);
    }
  }
};
Value max_pool_case(const Draw& draw) {
  Windows w(draw);
  return draw.make({draw.operand(w.x)},
                   {{"kernel", w.kernel}, {"stride", w.stride}, {"padding", w.padding}});
}
Value max_pool_gradient_case(const Draw& draw) {
  Windows w(draw);
  return draw.make({draw.operand(w.x), draw.operand(w.y)},
                   {{"kernel", w.kernel}, {"stride", w.stride}, {"padding", w.padding}});
}
Value avg_pool_case(const Draw& draw) {
  Windows w(draw);
  return draw.make({draw.operand(w.x)}, {{"kernel", w.kernel},
                                         {"stride", w.stride},
                                         {"padding", w.padding},
                                         {"count_include_pad", draw.random.below(2)}});
}
Value avg_pool_gradient_case(const Draw& draw) {
  Windows w(draw);
  return draw.make({draw.operand(w.y)}, {{"kernel", w.kernel},
                                         {"stride", w.stride},
                                         {"padding", w.padding},
                                         {"count_include_pad", draw.random.below(2)},
                                         {"input_shape", w.x}});
}

// ---- composites
Value along_axis(const Draw& draw) {
  Shape shape = draw.shape(1);
  return draw.make({draw.operand(shape)}, {{"axis", int64_t{draw.axis(shape)}}});
}
Value argsort_case(const Draw& draw) {
  return draw.make({draw.operand(draw.shape(1))}, {{"descending", draw.random.below(2)}});
}
Value over_axes(const Draw& draw) {
  Shape shape = draw.shape(1);
  shape[draw.axis(shape)] = 5;  // several elements to normalize over
  Dims axes = draw.some_axes(shape);
  return draw.make({draw.operand(shape)}, {{"axes", axes}, {"eps", 1e-2}});
}
Value batch_normalize_case(const Draw& draw) {
  Shape shape = draw.shape(1);
  shape[draw.axis(shape)] = 5;
  Dims axes = draw.some_axes(shape);
  Shape one_each = shape;
  for (int64_t axis : axes) one_each[static_cast<int>(axis)] = 1;
  return draw.make({draw.operand(shape), draw.operand(one_each), draw.operand(one_each)},
                   {{"axes", axes}, {"eps", 1e-2}});
}
Value cross_entropy_rows_case(const Draw& draw) {
  Shape logits = draw.source.shape(1, 3), labels = logits;
  int last = logits.size() - 1;
  logits[last] = std::max<int64_t>(1, logits[last]);
  labels[last] = 1;
  Value label = draw.source.operand({DType::i32, labels}, 0, static_cast<double>(logits[last] - 1));
  return draw.make({draw.operand(logits), label},
                   {{"label_smoothing", draw.random.pick<double>({0, 0.1})}});
}
// Returns attributes of attention over these scores[B, H, T, S], which may hide keys: causally, by
// a window, or by a mask of this type, which is then one of the operands.
Attrs with_hidden_keys(const Draw& draw, std::optional<DType> mask, Shape scores,
                       std::vector<Value>& operands) {
  Random& random = draw.random;
  Attrs attrs{{"causal", random.below(2)}, {"scale", 0.5}};
  // A query must see a key, so that its row of scores is not infinite throughout.
  if (attrs.integer("causal") == 1 && scores[3] >= scores[2] && random.below(2) == 1)
    attrs = attrs.with({"window", random.between(1, 3)});
  if (!mask || random.below(3) == 0) return attrs;
  for (int axis = 0; axis < scores.size(); ++axis)
    if (random.below(3) == 0) scores[axis] = 1;
  operands.push_back(draw.operand({*mask, scores}));
  return attrs.with({"mask", int64_t{1}});
}
Value attention_case(const Draw& draw) {
  Random& random = draw.random;
  int64_t batch = draw.many(1, 2), key_heads = random.between(1, 2), each = random.between(1, 2);
  int64_t queries = draw.many(1, 5), keys = draw.many(1, 5), width = draw.many(1, 4);
  std::vector<Value> inputs{draw.operand(Shape{batch, key_heads * each, queries, width}),
                            draw.operand(Shape{batch, key_heads, keys, width}),
                            draw.operand(Shape{batch, key_heads, keys, random.between(1, 4)})};
  const DType mask = random.below(2) == 1 ? DType::boolean : draw.dtype;
  const Attrs attrs =
      with_hidden_keys(draw, mask, {batch, key_heads * each, queries, keys}, inputs);
  return draw.make(inputs, attrs);
}

// Returns the operands of all recurrent layers: T time steps of B rows with H states and K gates.
std::vector<Value> recurrent_operands(const Draw& draw, int64_t gates) {
  int64_t steps = draw.random.between(1, 4), batch = draw.many(1, 3);
  int64_t hidden = draw.random.between(1, 3);
  return {draw.operand(Shape{steps, batch, gates * hidden}),
          draw.operand(Shape{gates * hidden, hidden}), draw.operand(Shape{batch, hidden})};
}
Value lstm_case(const Draw& draw) {
  std::vector<Value> inputs = recurrent_operands(draw, 4);
  inputs.push_back(draw.operand(inputs[2].shape()));
  return draw.make(inputs);
}
Value gru_case(const Draw& draw) {
  std::vector<Value> inputs = recurrent_operands(draw, 3);
  inputs.insert(inputs.begin() + 2, draw.operand(Shape{inputs[1].dim(0)}));
  return draw.make(inputs);
}

Value attention_gradient_case(const Draw& draw) {
  const int64_t key_heads = draw.random.between(1, 2), each = draw.random.between(1, 2);
  const Shape keys{draw.many(1, 2), key_heads, draw.many(1, 5), draw.many(1, 4)};
  Shape queries = keys;
  queries[1] *= each;
  std::vector<Value> inputs;
  inputs.reserve(4);
  for (const Shape& shape : {queries, keys, keys, queries}) inputs.push_back(draw.operand(shape));
  const Attrs attrs = with_hidden_keys(draw, DType::boolean,
                                       {queries[0], queries[1], queries[2], queries[2]}, inputs);
  return draw.make(inputs, attrs);
}
Value attention_logsumexp_case(const Draw& draw) {
  const int64_t batch = draw.many(1, 2), heads = draw.random.between(1, 2), width = draw.many(1, 4);
  const int64_t keys = draw.many(1, 5), queries = draw.many(1, 5);
  std::vector<Value> inputs{draw.operand(Shape{batch, heads, queries, width}),
                            draw.operand(Shape{batch, heads, keys, width}),
                            draw.operand(Shape{batch, heads, keys, draw.random.between(1, 4)})};
  // Beside a row without keys, whose score is -1e30, finite differences of others vanish.
  const Attrs attrs = with_hidden_keys(draw, {}, {batch, heads, queries, keys}, inputs);
  return draw.make(inputs, attrs);
}
// Uses y and the log-sum-exp of its own q, k and v, the only ones that are valid.
Value attention_backward_case(const Draw& draw) {
  const Value gradient =
      attention_gradient_case({op("attention_gradient"), draw.dtype, draw.source, draw.random});
  std::vector<Value> inputs(gradient->inputs.begin(), gradient->inputs.begin() + 4);
  const std::span<const Value> mask = std::span(gradient->inputs).subspan(4);
  std::vector<Value> forward(inputs.begin(), inputs.begin() + 3);
  forward.insert(forward.end(), mask.begin(), mask.end());
  inputs.push_back(make_node(op("attention"), forward, gradient->attrs));
  inputs.push_back(make_node(op("attention_logsumexp"), forward, gradient->attrs));
  inputs.insert(inputs.end(), mask.begin(), mask.end());
  return draw.make(inputs, gradient->attrs);
}
}  // namespace

std::map<std::string_view, Builder> layer_builders() {
  return {
      {"matmul", matmul_case},
      {"matmul_add", matmul_add_case},
      {"matmul_mixed", matmul_mixed_case},
      {"grouped_matmul", grouped_matmul_case},
      {"grouped_matmul_weight_gradient", grouped_weight_gradient_case},
      {"unpack", unpack_case},
      {"pack", pack_case},
      {"dequantize", dequantize_case},
      {"quantize_affine", quantize_case},
      {"fake_quantize", quantize_case},
      {"dequantize_blocks", dequantize_blocks_case},
      {"matmul_blocks", matmul_blocks_case},
      {"matmul_blocks_int8", matmul_blocks_case},
      {"grouped_matmul_blocks", grouped_matmul_blocks_case},
      {"grouped_matmul_blocks_int8", grouped_matmul_blocks_case},
      {"conv", conv_case},
      {"conv_mixed", conv_mixed_case},
      {"conv_input_gradient", conv_input_gradient_case},
      {"conv_weight_gradient", conv_weight_gradient_case},
      {"max_pool", max_pool_case},
      {"max_pool_gradient", max_pool_gradient_case},
      {"avg_pool", avg_pool_case},
      {"avg_pool_gradient", avg_pool_gradient_case},
      {"argsort", argsort_case},
      {"softmax", along_axis},
      {"log_softmax", along_axis},
      {"normalize", over_axes},
      {"rms_normalize", over_axes},
      {"batch_normalize", batch_normalize_case},
      {"cross_entropy_rows", cross_entropy_rows_case},
      {"attention", attention_case},
      {"attention_gradient", attention_gradient_case},
      {"attention_logsumexp", attention_logsumexp_case},
      {"attention_backward", attention_backward_case},
      {"lstm", lstm_case},
      {"gru", gru_case},
  };
}

}  // namespace weft::testing
