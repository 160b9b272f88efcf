// Draws uses of elementwise operations, reductions, movement, gathers, leaves and random numbers;
// op_layer_cases.cpp draws all others.
#include "tests/support/op_cases.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "tests/support/op_draw.h"

namespace weft::testing {
namespace {
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
Value part_at_case(const Draw& draw) {
  Shape shape = draw.source.shape(1, 3);
  const int axis = draw.axis(shape);
  const int64_t parts = draw.random.between(1, 3);
  shape[axis] *= parts;
  const Value part = draw.source.operand({DType::i64, {}}, -1, static_cast<double>(parts));
  return draw.make({draw.operand(shape), part}, {{"axis", int64_t{axis}}, {"parts", parts}});
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
  const double least = has_sign(draw.dtype) ? -1 : 0;
  Type type{draw.dtype, draw.source.shape(0, 2)};
  return draw.make({draw.source.operand(type, least, static_cast<double>(rows))}, {{"rows", rows}});
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
  const Shape shape = draw.shape();
  Attrs attrs{
      {"shape", shape}, {"seed", draw.random.between(-5, 5)}, {"stream", draw.random.below(9)}};
  if (draw.random.below(2) == 0) {  // a part of a larger tensor
    Shape whole = shape;
    for (int axis = 0; axis < whole.size(); ++axis) whole[axis] += draw.random.below(3);
    attrs =
        attrs.with({"offset", draw.random.below(50)}).with({"strides", row_major_strides(whole)});
  }
  std::vector<Value> operands{draw.source.operand({DType::i64, {}}, 0, 100)};
  if (draw.def.arity == 2) {
    operands.push_back(draw.source.operand({DType::i64, {}}, 0, 8));
    attrs = attrs.with(
        {"every", draw.random.below(2) == 0 ? 4 * draw.random.below(30) : draw.random.below(100)});
  }
  return draw.make(operands, attrs);
}

const std::map<std::string_view, Builder>& builders() {
  static const std::map<std::string_view, Builder> table = [] {
    std::map<std::string_view, Builder> rows = {
        {"round_stochastic", round_stochastic_case},
        {"bounded_cross_entropy", elementwise},
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
        {"part_at", part_at_case},
        {"scatter_add", scatter_add_case},
        {"first_position", first_position_case},
        {"update_at", update_at_case},
        {"random_uniform", random_uniform_case},
        {"random_uniform_part", random_uniform_case},
        {"custom_gradient",
         [](const Draw& draw) { return draw.make({draw.operand(draw.shape())}); }},
    };
    rows.merge(layer_builders());
    return rows;
  }();
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
  return def.name != "input" && def.name != "data" && def.name != "variable" &&
         def.kind != OpKind::collective;
}

std::vector<DType> dtypes_of(const OpDef& def) {
  std::vector<DType> dtypes;
  if (def.test.floats) dtypes = {DType::f64, DType::f32, DType::bf16, DType::f16};
  if (def.test.integers)
    for (DType dtype :
         {DType::i64, DType::i32, DType::u32, DType::i16, DType::u16, DType::i8, DType::u8})
      dtypes.push_back(dtype);
  if (def.test.booleans) dtypes.push_back(DType::boolean);
  const bool carries = def.kind == OpKind::movement || def.scalar == ScalarOp::cast;
  // Bits of floats are tested by themselves: a rounding error changes them beyond any tolerance.
  if (def.name == "bitcast") return {DType::u8, DType::i8};
  if (def.name == "unpack") return {DType::i4x2};
  if (def.name == "pack") return {DType::i8};
  if (def.name == "dequantize_blocks") return {DType::u8};
  if (def.name == "dequantize")
    return {DType::i8,  DType::u8,      DType::i16,     DType::u16,
            DType::i32, DType::f8_e4m3, DType::f8_e5m2, DType::i4x2};
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

Placement scattered(const Shape& shape, Random& random) {
  std::vector<int> order(static_cast<size_t>(shape.size()));
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), random.bits);
  Placement at{.slot = 0, .offset = random.below(4), .strides = shape};
  int64_t stride = random.between(1, 2);
  for (int axis : order) {
    const int64_t extent = shape[axis];
    at.strides[axis] = stride;
    if (random.chance(0.3) && extent > 0) {
      at.offset += (extent - 1) * stride;
      at.strides[axis] = -stride;
    }
    stride *= std::max<int64_t>(1, extent) + random.below(2);
  }
  return at;
}
}  // namespace weft::testing
