#include "tests/support/op_cases.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "weft/ops/ops.h"

namespace weft::testing {
namespace {
// One case being drawn: the op, its dtype, and the source of operands.
struct Draw {
  const OpDef& def;
  DType dtype;
  CaseSource& source;
  Random& random;

  // Draws operand `i` from the range of the test row, or from its second range.
  Value operand(const Shape& shape, int i = 0) const { return operand({dtype, shape}, i); }
  Value operand(const Type& type, int i = 0) const {
    const TestRow& row = def.test;
    bool second = i > 0 && row.second_low != row.second_high;
    return source.operand(type, second ? row.second_low : row.low,
                          second ? row.second_high : row.high);
  }
  Value indices(const Shape& shape, int64_t count) const {
    // Some indices are out of range, on either side.
    double beyond = random.chance(0.3) ? 1 : 0;
    DType type = random.chance(0.5) ? DType::i64 : DType::i32;
    return source.operand({type, shape}, -beyond, static_cast<double>(count) - 1 + beyond);
  }
  Shape shape(int least_rank = 0) const { return source.shape(least_rank, source.max_rank); }
  int64_t extent() const { return random.pick(source.extents); }
  // Returns the number of channels: an extent of the case, limited in small cases.
  int64_t few() const { return std::clamp<int64_t>(extent(), 1, 2 + source.most_elements / 100); }
  // Returns the number of images or queries, which may be zero.
  int64_t many(int64_t low, int64_t high) const {
    return source.empty && random.chance(0.5) ? 0 : random.between(low, high);
  }
  int axis(const Shape& shape) const { return static_cast<int>(random.below(shape.size())); }
  Dims some_axes(const Shape& shape) const {
    Dims axes;
    int certain = axis(shape);
    for (int i = 0; i < shape.size(); ++i)
      if (i == certain || random.chance(0.4)) axes.push_back(i);
    return axes;
  }
  Value make(std::vector<Value> inputs, Attrs attrs = {}) const {
    return make_node(def, std::move(inputs), std::move(attrs));
  }
};
using Builder = Value (*)(const Draw& draw);

Value elementwise(const Draw& draw) {
  Shape shape = draw.shape();
  std::vector<Value> inputs;
  inputs.reserve(static_cast<size_t>(draw.def.arity));
  for (int i = 0; i < draw.def.arity; ++i) inputs.push_back(draw.operand(shape, i));
  if (draw.def.name == "select") inputs[0] = draw.operand({DType::boolean, shape});
  if (draw.def.name != "cast") return draw.make(inputs);
  // Casts to storage-only types start from such types alone.
  std::vector<DType> targets;
  for (int i = 0; i < dtype_count; ++i)
    if (const auto type = static_cast<DType>(i);
        info(type).numbers == 1 && (!info(type).stored_only || info(draw.dtype).stored_only))
      targets.push_back(type);
  if (info(draw.dtype).numbers > 1) targets = {DType::u8};
  return draw.make(inputs, {{"dtype", static_cast<int64_t>(draw.random.pick(targets))}});
}

Value round_stochastic_case(const Draw& draw) {
  Shape shape = draw.shape();
  return draw.make({draw.operand({DType::f32, shape}), draw.operand({DType::f32, shape}, 1)});
}

Value reduce(const Draw& draw) {
  Shape shape = draw.shape(1);
  bool index = draw.def.name == "argmax" || draw.def.name == "argmin";
  Dims axes = index ? Dims{draw.axis(shape)} : draw.some_axes(shape);
  return draw.make({draw.operand(shape)}, {{"axes", axes}});
}

// ---- movement
Value reshape_case(const Draw& draw) {
  Shape from = draw.shape(), to;
  int64_t left = element_count(from);
  while (left > 1 && to.size() < 4) {
    int64_t factor = draw.random.pick<int64_t>({1, 2, 3, 5, left});
    if (left % factor != 0) continue;
    to.push_back(factor);
    left /= factor;
  }
  if (left != 1) to.push_back(left);
  return draw.make({draw.operand(from)}, {{"shape", to}});
}
Value permute_case(const Draw& draw) {
  Shape shape = draw.shape(1);
  std::vector<int64_t> order(static_cast<size_t>(shape.size()));
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), draw.random.bits);
  return draw.make({draw.operand(shape)}, {{"order", Dims(order)}});
}
Value broadcast_case(const Draw& draw) {
  Shape to = draw.shape(1), from = to;
  for (int64_t axis : draw.some_axes(to)) from[static_cast<int>(axis)] = 1;
  return draw.make({draw.operand(from)}, {{"shape", to}});
}
Value slice_case(const Draw& draw) {
  Shape shape = draw.shape(1);
  int axis = draw.axis(shape);
  int64_t start = draw.random.below(shape[axis] + 1),
          stop = draw.random.between(start, shape[axis]);
  if (start == stop && start > 0 && draw.random.chance(0.8)) --start;  // mostly not empty
  return draw.make({draw.operand(shape)}, {{"axis", int64_t{axis}},
                                           {"start", start},
                                           {"stop", stop},
                                           {"step", draw.random.between(1, 3)}});
}
Value flip_case(const Draw& draw) {
  Shape shape = draw.shape(1);
  return draw.make({draw.operand(shape)}, {{"axes", draw.some_axes(shape)}});
}
Value pad_case(const Draw& draw) {
  Shape shape = draw.shape(1);
  Dims low = shape, high = shape;
  for (int i = 0; i < shape.size(); ++i) {
    low[i] = draw.random.below(3);
    high[i] = draw.random.below(3);
  }
  double value = draw.dtype == DType::boolean ? 1 : draw.random.pick<double>({0, 1, 3});
  return draw.make({draw.operand(shape)}, {{"low", low}, {"high", high}, {"value", value}});
}
Value concat_case(const Draw& draw) {
  Shape shape = draw.shape(1);
  int axis = draw.axis(shape);
  std::vector<Value> parts;
  for (int64_t i = draw.random.between(1, 3); i > 0; --i) {
    shape[axis] = draw.extent();
    parts.push_back(draw.operand(shape));
  }
  return draw.make(parts, {{"axis", int64_t{axis}}});
}

// ---- gather and scatter
Value gather_case(const Draw& draw) {
  Shape shape = draw.source.shape(1, 3);
  int axis = draw.axis(shape);
  Value indices = draw.indices(draw.source.shape(0, 2), shape[axis]);
  return draw.make({draw.operand(shape), indices}, {{"axis", int64_t{axis}}});
}
Value scatter_add_case(const Draw& draw) {
  Shape into = draw.source.shape(1, 3), places = draw.source.shape(0, 2), updates = places;
  for (int i = 1; i < into.size(); ++i) updates.push_back(into[i]);
  return draw.make({draw.operand(into), draw.indices(places, into[0]), draw.operand(updates)});
}
Value update_at_case(const Draw& draw) {
  Shape shape = draw.shape(1), part = shape;
  const int axis = draw.axis(shape);
  part[axis] = draw.extent();
  const double last = static_cast<double>(shape[axis]) + 1;
  return draw.make(
      {draw.operand(shape), draw.source.operand({DType::i64, {1}}, -2, last), draw.operand(part)},
      {{"axis", int64_t{axis}}});
}
Value first_position_case(const Draw& draw) {
  const int64_t rows = draw.extent();
  const double least = draw.dtype == DType::u8 ? 0 : -1;
  Type type{draw.dtype, draw.source.shape(0, 2)};
  return draw.make({draw.source.operand(type, least, static_cast<double>(rows))}, {{"rows", rows}});
}

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

// One factor of the drawn type, the other of any that there is a product with.
Value matmul_mixed_case(const Draw& draw) {
  const Value product = matmul_case(Draw{op("matmul_mixed"), DType::i8, draw.source, draw.random});
  std::vector<DType> others;
  for (int i = 0; i < dtype_count; ++i) {
    const DTypeInfo& of = info(static_cast<DType>(i));
    const bool exact = is_float(draw.dtype) ? of.kind == NumberKind::floating || of.bits == 8
                                            : of.kind != NumberKind::floating || of.bits > 8;
    const bool small =
        is_float(draw.dtype) || info(draw.dtype).bits == 8 || of.kind != NumberKind::floating;
    // Finite differences in float64 are of the other factor.
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

// ---- numbers of few bits
Value unpack_case(const Draw& draw) { return draw.make({draw.operand(draw.shape(1))}); }
Value pack_case(const Draw& draw) {
  Shape shape = draw.shape(1);
  shape[shape.size() - 1] *= 2;
  return draw.make({draw.operand(shape)});
}
Value dequantize_case(const Draw& draw) {
  Shape shape = draw.shape(1), blocks = shape;
  for (int axis = 0; axis < shape.size(); ++axis) {
    if (draw.random.chance(0.5)) continue;
    const int64_t block = draw.random.pick<int64_t>({1, 2, 3});
    if (shape[axis] % block == 0) blocks[axis] = shape[axis] / block;
  }
  const DType numbers = info(draw.dtype).bits == 8 ? draw.dtype : DType::i8;
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

// A convolution's attributes and shapes.
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

// ---- leaves and random
Value scalar_case(const Draw& draw) {
  return scalar(static_cast<double>(draw.random.below(3)), draw.dtype);
}
Value iota_case(const Draw& draw) {
  Shape shape = draw.shape(1);
  return iota(shape, draw.axis(shape), draw.dtype == DType::boolean ? DType::i64 : draw.dtype);
}
Value random_uniform_case(const Draw& draw) {
  return draw.make({draw.source.operand({DType::i64, {}}, 0, 100)},
                   {{"shape", draw.shape()},
                    {"seed", draw.random.between(-5, 5)},
                    {"stream", draw.random.below(9)}});
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
Value attention_case(const Draw& draw) {
  Random& random = draw.random;
  int64_t batch = draw.many(1, 2), key_heads = random.between(1, 2), each = random.between(1, 2);
  int64_t queries = draw.many(1, 5), keys = draw.many(1, 5), width = draw.many(1, 4);
  std::vector<Value> inputs{draw.operand(Shape{batch, key_heads * each, queries, width}),
                            draw.operand(Shape{batch, key_heads, keys, width}),
                            draw.operand(Shape{batch, key_heads, keys, random.between(1, 4)})};
  int64_t mask = random.below(3);
  DType mask_type = mask == 1 ? DType::boolean : draw.dtype;
  if (mask != 0) inputs.push_back(draw.operand({mask_type, {batch, 1, queries, keys}}));
  return draw.make(inputs, {{"causal", random.below(2)}, {"scale", 0.5}});
}

// Returns the operands of all recurrent layers: T steps of B rows with H states and K gates.
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
  const Shape shape{draw.many(1, 2), draw.random.between(1, 2), draw.many(1, 5), draw.many(1, 4)};
  std::vector<Value> inputs;
  inputs.reserve(4);
  for (int i = 0; i < 4; ++i) inputs.push_back(draw.operand(shape));
  return draw.make(inputs, {{"causal", draw.random.below(2)}, {"scale", 0.5}});
}
Value attention_logsumexp_case(const Draw& draw) {
  const int64_t batch = draw.many(1, 2), heads = draw.random.between(1, 2), width = draw.many(1, 4);
  const int64_t keys = draw.many(1, 5);
  return draw.make({draw.operand(Shape{batch, heads, draw.many(1, 5), width}),
                    draw.operand(Shape{batch, heads, keys, width}),
                    draw.operand(Shape{batch, heads, keys, draw.random.between(1, 4)})},
                   {{"causal", draw.random.below(2)}, {"scale", 0.5}});
}
// Uses y and the log-sum-exp of its own q, k and v, the only ones that are valid.
Value attention_backward_case(const Draw& draw) {
  const Value gradient =
      attention_gradient_case({op("attention_gradient"), draw.dtype, draw.source, draw.random});
  std::vector<Value> inputs = gradient->inputs;
  const std::vector<Value> forward(inputs.begin(), inputs.begin() + 3);
  inputs.push_back(make_node(op("attention"), forward, gradient->attrs));
  inputs.push_back(make_node(op("attention_logsumexp"), forward, gradient->attrs));
  return draw.make(inputs, gradient->attrs);
}

const std::map<std::string_view, Builder>& builders() {
  static const std::map<std::string_view, Builder> table = {
      {"round_stochastic", round_stochastic_case},
      {"scalar", scalar_case},
      {"iota", iota_case},
      {"reshape", reshape_case},
      {"permute", permute_case},
      {"broadcast", broadcast_case},
      {"slice", slice_case},
      {"flip", flip_case},
      {"pad", pad_case},
      {"concat", concat_case},
      {"gather", gather_case},
      {"scatter_add", scatter_add_case},
      {"first_position", first_position_case},
      {"update_at", update_at_case},
      {"matmul", matmul_case},
      {"matmul_add", matmul_add_case},
      {"matmul_mixed", matmul_mixed_case},
      {"unpack", unpack_case},
      {"pack", pack_case},
      {"dequantize", dequantize_case},
      {"conv", conv_case},
      {"conv_input_gradient", conv_input_gradient_case},
      {"conv_weight_gradient", conv_weight_gradient_case},
      {"max_pool", max_pool_case},
      {"max_pool_gradient", max_pool_gradient_case},
      {"avg_pool", avg_pool_case},
      {"avg_pool_gradient", avg_pool_gradient_case},
      {"random_uniform", random_uniform_case},
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
      {"custom_gradient", [](const Draw& draw) { return draw.make({draw.operand(draw.shape())}); }},
      {"gru", gru_case},
  };
  return table;
}
}  // namespace

Shape CaseSource::shape(int least_rank, int most_rank) {
  int rank = static_cast<int>(
      random.between(least_rank, std::max(least_rank, std::min(most_rank, max_rank))));
  Shape result;
  int64_t left = most_elements;
  for (int i = 0; i < rank; ++i) {
    int64_t extent = random.pick(extents);
    if (extent > left) extent = 1;
    left /= std::max<int64_t>(1, extent);
    result.push_back(extent);
  }
  return result;
}

bool has_cases(const OpDef& def) {
  return def.name != "input" && def.name != "data" && def.name != "variable";
}

std::vector<DType> dtypes_of(const OpDef& def) {
  std::vector<DType> dtypes;
  if (def.test.floats) dtypes = {DType::f64, DType::f32, DType::bf16, DType::f16};
  if (def.test.integers)
    for (DType dtype : {DType::i64, DType::i32, DType::i16, DType::i8, DType::u8})
      dtypes.push_back(dtype);
  if (def.test.booleans) dtypes.push_back(DType::boolean);
  const bool carries = def.kind == OpKind::movement || def.scalar == ScalarOp::cast;
  if (def.name == "unpack") return {DType::i4x2};
  if (def.name == "pack") return {DType::i8};
  if (def.name == "dequantize")
    return {DType::i8, DType::u8, DType::f8_e4m3, DType::f8_e5m2, DType::i4x2};
  if (carries || def.test.stored)
    for (DType dtype : {DType::f8_e4m3, DType::f8_e5m2}) dtypes.push_back(dtype);
  if (carries) dtypes.push_back(DType::i4x2);
  return dtypes;
}

Value draw_case(const OpDef& def, DType dtype, CaseSource& source) {
  Draw draw{def, dtype, source, source.random};
  auto named = builders().find(def.name);
  if (named != builders().end()) return named->second(draw);
  if (def.kind == OpKind::elementwise || def.oracle != nullptr) return elementwise(draw);
  if (def.kind == OpKind::reduce) return reduce(draw);
  WEFT_ASSERT(false, "tests/support/op_cases.cpp has no case for the op {}", def.name);
}

namespace {
// The minimum or maximum of no elements has no value.
bool has_meaning(const Value& value) {
  if (value->op->kind != OpKind::reduce || value->is("sum") || value->is("prod")) return true;
  const Dims& axes = value->attrs.dims("axes");
  return std::none_of(axes.begin(), axes.end(), [&](int64_t axis) {
    return value->inputs[0].dim(static_cast<int>(axis)) == 0;
  });
}
}  // namespace

Value draw_empty_case(const OpDef& def, DType dtype, CaseSource& source) {
  source.empty = true;
  source.extents = {0, 1, 3};
  for (int attempt = 0; attempt < 100; ++attempt) {
    Value value = draw_case(def, dtype, source);
    bool empty = value.elements() == 0;
    for (const Value& input : value->inputs) empty |= input.elements() == 0;
    if (empty && has_meaning(value)) return value;
  }
  return {};
}
}  // namespace weft::testing
