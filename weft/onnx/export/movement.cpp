// Exports movement, gathers, scatters, sorting and reductions.
#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>

#include "weft/base/memory/buffer.h"
#include "weft/onnx/export/emitter.h"
#include "weft/onnx/file/types.h"
#include "weft/tensor/tensor.h"

namespace weft::onnx {
namespace {
using Name = std::string;
constexpr int64_t to_the_end = std::numeric_limits<int64_t>::max();
constexpr int64_t to_the_start = std::numeric_limits<int64_t>::min();

Name permute(Emitter& to, const weft::Node& node, Operands x) {
  return to.add("Transpose", {x[0]}, {{"perm", list(node.attrs.dims("order"))}});
}

Name slice(Emitter& to, const weft::Node& node, Operands x) {
  const auto axis = static_cast<int>(node.attrs.integer("axis"));
  const weft::Node& of = *node.inputs[0].node();
  const int64_t start = node.attrs.integer("start");
  int64_t stop = node.attrs.integer("stop");
  if (to.batches(of, axis) != 0) {
    if (to.other(node).attrs.integer("start") != start ||
        to.other(node).attrs.integer("stop") != to.other(node).inputs[0].shape()[axis] ||
        stop != of.type.shape[axis])
      throw NotSymbolic{"slice takes a part of it"};
    stop = to_the_end;
  }
  return to.add("Slice", {x[0], to.integers({start}), to.integers({stop}), to.integers({axis}),
                          to.integers({node.attrs.integer("step")})});
}

Name flip(Emitter& to, const weft::Node& node, Operands x) {
  const std::vector<int64_t> axes = list(node.attrs.dims("axes"));
  const auto each = [&](int64_t value) {
    return to.integers(std::vector<int64_t>(axes.size(), value));
  };
  return to.add("Slice", {x[0], each(-1), each(to_the_start), to.integers(axes), each(-1)});
}

Name pad(Emitter& to, const weft::Node& node, Operands x) {
  std::vector<int64_t> pads = list(node.attrs.dims("low"));
  for (int64_t high : node.attrs.dims("high")) pads.push_back(high);
  return to.add("Pad",
                {x[0], to.integers(pads), to.number(node.attrs.number("value"), node.type.dtype)});
}

Name concatenate(Emitter& to, const weft::Node& node, Operands x) {
  return to.add("Concat", {x.begin(), x.end()}, {{"axis", node.attrs.integer("axis")}});
}

// ---- gathers and scatters. At an index outside of the axis weft's gathers read 0 and its scatters
// drop the update; ONNX forbids such indices.

struct Bounds {
  double low, high;
};
// Returns bounds of the elements where these follow from constants; else nullopt.
std::optional<Bounds> bounds_of(const Value& value, int depth = 0) {
  constexpr int deepest = 16;
  const weft::Node& node = *value.node();
  if (depth > deepest || value.elements() == 0) return {};
  if (node.is("scalar")) return Bounds{node.attrs.number("value"), node.attrs.number("value")};
  if (node.is("iota"))
    return Bounds{
        0, static_cast<double>(node.type.shape[static_cast<int>(node.attrs.integer("axis"))] - 1)};
  if (node.is("data")) {
    const std::vector<double> elements = value.to_doubles();
    const auto [low, high] = std::ranges::minmax(elements);
    return Bounds{low, high};
  }
  if (node.inputs.empty()) return {};
  const std::optional<Bounds> a = bounds_of(node.inputs[0], depth + 1);
  if (!a) return {};
  const bool moves = node.op->kind == OpKind::movement && node.op->view != nullptr;
  if (moves || node.is("identity")) return a;
  // Narrower types could wrap.
  if (node.is("cast") && is_integer(value.dtype()) && size_of(value.dtype()) >= 4) return a;
  if (node.inputs.size() != 2) return {};
  const std::optional<Bounds> b = bounds_of(node.inputs[1], depth + 1);
  if (!b) return {};
  if (node.is("add")) return Bounds{a->low + b->low, a->high + b->high};
  if (node.is("sub")) return Bounds{a->low - b->high, a->high - b->low};
  if (node.is("maximum")) return Bounds{std::max(a->low, b->low), std::max(a->high, b->high)};
  if (node.is("minimum")) return Bounds{std::min(a->low, b->low), std::min(a->high, b->high)};
  if (node.is("mul") && a->low >= 0 && b->low >= 0)
    return Bounds{a->low * b->low, a->high * b->high};
  return {};
}
// Returns whether the elements come from a model input, such as tokens, whose indices may be
// assumed to be valid.
bool is_input(const Value& value) {
  const weft::Node& node = *value.node();
  if (node.is("input")) return true;
  const bool passes = node.is("cast") || node.is("identity") ||
                      (node.op->kind == OpKind::movement && node.op->view != nullptr);
  return passes && is_input(node.inputs[0]);
}
bool is_valid(const Value& indices, int64_t extent) {
  if (is_input(indices)) return true;
  const std::optional<Bounds> bounds = bounds_of(indices);
  return bounds && bounds->low >= 0 && bounds->high < static_cast<double>(extent);
}

// Checked holds indices in i64, 0 in place of invalid ones, and a mask of the valid ones.
struct Checked {
  Name indices, valid;
};
Checked checked(Emitter& to, const Name& given, DType dtype, const Name& extent) {
  const Name indices = to.cast(given, dtype, DType::i64);
  const Name valid = to.add("And", {to.add("GreaterOrEqual", {indices, to.number(0, DType::i64)}),
                                    to.add("Less", {indices, extent})});
  return {to.add("Where", {valid, indices, to.number(0, DType::i64)}), valid};
}
// Appends axes of extent 1 to a value of rank `rank`.
Name with_axes_behind(Emitter& to, const Name& x, int rank, int count) {
  if (count == 0) return x;
  std::vector<int64_t> axes(static_cast<size_t>(count));
  std::iota(axes.begin(), axes.end(), rank);
  return to.add("Unsqueeze", {x, to.integers(axes)});
}

Name gather(Emitter& to, const weft::Node& node, Operands x) {
  const Value &table = node.inputs[0], &indices = node.inputs[1];
  const auto axis = static_cast<int>(node.attrs.integer("axis"));
  const Emitter::Attributes along{{"axis", int64_t{axis}}};
  if (is_valid(indices, table.dim(axis))) {
    const bool takes = indices.dtype() == DType::i64 || indices.dtype() == DType::i32;
    return to.add("Gather", {x[0], takes ? x[1] : to.cast(x[1], indices.dtype(), DType::i64)},
                  along);
  }
  if (table.dim(axis) == 0)
    return to.add("Expand", {to.number(0, node.type.dtype), to.shape(node)});
  const Checked at = checked(to, x[1], indices.dtype(), to.extent_number(*table.node(), axis));
  const Name found = to.add("Gather", {x[0], at.indices}, along);
  const Name valid = with_axes_behind(to, at.valid, indices.rank(), table.rank() - 1 - axis);
  // onnxruntime has no Where of bool.
  if (node.type.dtype == DType::boolean) return to.add("And", {valid, found});
  return to.add("Where", {valid, found, to.number(0, node.type.dtype)});
}

Name scatter_add(Emitter& to, const weft::Node& node, Operands x) {
  const Value& indices = node.inputs[1];
  if (node.type.shape[0] == 0) return to.add("Identity", {x[0]});
  const Checked at = checked(to, x[1], indices.dtype(), to.extent_number(node, 0));
  const Name valid = with_axes_behind(to, at.valid, indices.rank(), node.type.shape.size() - 1);
  const Name updates = to.add("Where", {valid, x[2], to.number(0, node.type.dtype)});
  return to.add("ScatterND", {x[0], to.unsqueeze(at.indices, -1), updates},
                {{"reduction", std::string("add")}});
}

// The first position of a row is the least position that is scattered to the row.
Name first_position(Emitter& to, const weft::Node& node, Operands x) {
  const Value& indices = node.inputs[0];
  for (int axis = 0; axis < indices.rank(); ++axis) to.fixed(*indices.node(), axis);
  const int64_t count = indices.elements();
  if (node.type.elements() == 0 || count == 0)
    return to.add("Expand", {to.number(-1, DType::i64), to.shape(node)});
  const Name row = to.add("Reshape", {x[0], to.integers({count})});
  const Checked at = checked(to, row, indices.dtype(), to.extent_number(node, 0));
  const Name none = to.number(static_cast<double>(count), DType::i64);
  const Name position = to.constant(arange(count).eval(), "positions");
  const Name all = to.add("Expand", {none, to.shape(node)});
  const Name first = to.add(
      "ScatterND", {all, to.unsqueeze(at.indices, -1), to.add("Where", {at.valid, position, none})},
      {{"reduction", std::string("min")}});
  return to.add("Where", {to.add("Equal", {first, none}), to.number(-1, DType::i64), first});
}

// A TopK of all elements sorts them; of equal elements it takes the lower index first.
Name argsort(Emitter& to, const weft::Node& node, Operands x) {
  const int last = node.type.shape.size() - 1;
  const Name count = to.integers({to.fixed(node, last)});
  const DType dtype = node.inputs[0].dtype();
  const bool takes = is_float(dtype) || dtype == DType::i64 || dtype == DType::i32;
  return to.add_result("TopK", {takes ? x[0] : to.cast(x[0], dtype, DType::i32), count},
                       {{"axis", int64_t{-1}},
                        {"largest", node.attrs.integer("descending")},
                        {"sorted", int64_t{1}}},
                       1);
}

// ---- reductions

// Narrow integers, which ONNX does not reduce, are reduced in i32; sums of them wrap the same.
Name reduce(Emitter& to, std::string_view op, const weft::Node& node, const Name& x) {
  const DType dtype = node.type.dtype;
  const bool is_narrow = !is_float(dtype) && size_of(dtype) < 4;
  const Name wide = is_narrow ? to.cast(x, dtype, DType::i32) : x;
  const Name result =
      to.add(op, {wide, to.integers(list(node.attrs.dims("axes")))}, {{"keepdims", int64_t{1}}});
  return is_narrow ? to.cast(result, DType::i32, dtype) : result;
}
Name index_of(Emitter& to, std::string_view op, const weft::Node& node, const Name& x) {
  return to.add(op, {x}, {{"axis", node.attrs.dims("axes")[0]}, {"keepdims", int64_t{1}}});
}

constexpr ExportRow movement_exports[] = {
    {.op = "permute", .onnx = {}, .emit = permute},
    {.op = "slice", .onnx = {}, .emit = slice},
    {.op = "flip", .onnx = {}, .emit = flip},
    {.op = "pad", .onnx = {}, .emit = pad},
    {.op = "concat", .onnx = {}, .emit = concatenate},
    {.op = "reshape",
     .onnx = {},
     .emit = [](Emitter& to, const weft::Node& node,
                Operands x) { return to.reshape(x[0], node); }},
    {.op = "gather", .onnx = {}, .emit = gather},
    {.op = "scatter_add", .onnx = {}, .emit = scatter_add},
    {.op = "first_position", .onnx = {}, .emit = first_position},
    {.op = "argsort",
     .onnx = {},
     .emit = argsort,
     .takes = [](const weft::Node& node) { return node.type.elements() > 0; }},
    {.op = "sum",
     .onnx = {},
     .emit = [](Emitter& to, const weft::Node& node,
                Operands x) { return reduce(to, "ReduceSum", node, x[0]); }},
    {.op = "prod",
     .onnx = {},
     .emit = [](Emitter& to, const weft::Node& node,
                Operands x) { return reduce(to, "ReduceProd", node, x[0]); }},
    {.op = "max",
     .onnx = {},
     .emit = [](Emitter& to, const weft::Node& node,
                Operands x) { return reduce(to, "ReduceMax", node, x[0]); }},
    {.op = "min",
     .onnx = {},
     .emit = [](Emitter& to, const weft::Node& node,
                Operands x) { return reduce(to, "ReduceMin", node, x[0]); }},
    {.op = "argmax",
     .onnx = {},
     .emit = [](Emitter& to, const weft::Node& node,
                Operands x) { return index_of(to, "ArgMax", node, x[0]); }},
    {.op = "argmin",
     .onnx = {},
     .emit = [](Emitter& to, const weft::Node& node,
                Operands x) { return index_of(to, "ArgMin", node, x[0]); }},
};
}  // namespace

std::span<const ExportRow> movement_export_rows() { return movement_exports; }

}  // namespace weft::onnx
