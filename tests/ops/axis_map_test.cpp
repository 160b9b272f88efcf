// Tests the axis maps of all registered ops: whatever a map says can be computed in parts has the
// same bits in parts, on the reference kernels.
#include "weft/ir/axis_map.h"

#include <algorithm>
#include <map>

#include <doctest/doctest.h>

#include "tests/support/interpreter.h"
#include "tests/support/op_cases.h"
#include "tests/support/planned.h"
#include "weft/base/numbers/hash.h"
#include "weft/ops/ops.h"

using namespace weft;
using namespace weft::testing;

namespace {
using Axes = std::vector<FactoredAxis>;

struct Range {
  int64_t from, to;
};
// FactorPosition is the position of a factor in a value: on `axis`, where factors of `before`
// elements precede it.
struct FactorPosition {
  int axis;
  int64_t before;
};
std::optional<FactorPosition> find(const AxisMap& map, const Axes& axes, int factor) {
  for (size_t axis = 0; axis < axes.size(); ++axis) {
    int64_t before = 1;
    for (int one : axes[axis].factors) {
      if (one == factor) return FactorPosition{static_cast<int>(axis), before};
      before *= map.factors[static_cast<size_t>(one)].size;
    }
  }
  return std::nullopt;
}

// Returns the part of a value in a range of a factor, which may be one of several on its axis.
Value part_of(const Value& x, const AxisMap& map, const Axes& axes, int factor, Range range) {
  const auto at = find(map, axes, factor);
  if (!at) return x;
  const int64_t size = map.factors[static_cast<size_t>(factor)].size;
  Shape split, merged = x.shape();
  for (int i = 0; i < x.rank(); ++i) {
    if (i != at->axis) {
      split.push_back(x.shape()[i]);
      continue;
    }
    for (int64_t extent : {at->before, size, x.shape()[i] / at->before / size})
      split.push_back(extent);
  }
  merged[at->axis] = merged[at->axis] / size * (range.to - range.from);
  return reshape(slice(reshape(x, split), at->axis + 1, range.from, range.to), merged);
}

// Returns the same operation on the given operands, for a range of one factor.
Value local(const Node& node, const AxisMap& map, int factor, Range range,
            std::vector<Value> operands) {
  const Factor& about = map.factors[static_cast<size_t>(factor)];
  Part part{.shape = node.type.shape,
            .from = range.from,
            .count = range.to - range.from,
            .factor = factor};
  if (const auto at = find(map, map.result, factor)) {
    part.axis = at->axis;
    part.shape[at->axis] = part.shape[at->axis] / about.size * part.count;
  }
  const Attrs attrs = attrs_for(node, map, part);
  if (node.op->kind == OpKind::leaf)
    return make_leaf(*node.op, {node.type.dtype, part.shape}, attrs);
  return make_node(*node.op, std::move(operands), attrs);
}
Value local(const Node& node, const AxisMap& map, int factor, Range range) {
  std::vector<Value> operands;
  operands.reserve(node.inputs.size());
  for (size_t i = 0; i < node.inputs.size(); ++i)
    operands.push_back(part_of(node.inputs[i], map, map.operands[i], factor, range));
  return local(node, map, factor, range, std::move(operands));
}

// Returns the range of an operand's axis that a range of the result depends on.
Range window_of(const Window& window, Range range) {
  auto divide = [&](int64_t a) {
    return a >= 0 ? a / window.divisor : -((-a + window.divisor - 1) / window.divisor);
  };
  int64_t least = INT64_MAX, most = INT64_MIN;
  for (int64_t i : {range.from, range.to - 1})
    for (int64_t reach : {window.low, window.high}) {
      least = std::min(least, divide(i * window.scale + reach));
      most = std::max(most, divide(i * window.scale + reach));
    }
  return {least, most + 1};
}

// Returns the node with operands changed wherever the range of the result does not read them.
Value elsewhere_changed(const Node& node, const AxisMap& map, int factor, Range range,
                        Random& random) {
  const Factor& about = map.factors[static_cast<size_t>(factor)];
  std::vector<Value> operands;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const Value& x = node.inputs[i];
    operands.push_back(x);
    const auto at = find(map, map.operands[i], factor);
    if (!at) continue;
    const bool affine = about.relation == Relation::affine;
    const Range read =
        affine ? window_of(map.operands[i][static_cast<size_t>(at->axis)].window, range) : range;
    const int64_t extent = affine ? x.dim(at->axis) : about.size;
    int64_t inner = x.dim(at->axis) / at->before / extent;  // stride of the factor in elements
    for (int axis = at->axis + 1; axis < x.rank(); ++axis) inner *= x.dim(axis);
    std::vector<double> values = elements(x);
    for (size_t k = 0; k < values.size(); ++k) {
      const int64_t position = static_cast<int64_t>(k) / inner % extent;
      if (position < read.from || position >= read.to) values[k] = random.pick(values);
    }
    operands.back() = constant(values, x.shape(), x.dtype());
  }
  return make_node(*node.op, std::move(operands), node.attrs);
}

// Returns the node on operands that are evaluated into memory.
Value evaluated_operands(const Value& value) {
  if (value->inputs.empty()) return value;
  return make_node(*value->op, interpret(value->inputs), value->attrs);
}

struct Tried {
  int sliced = 0, joined = 0, changed = 0;
};

void try_factor(const Node& node, const AxisMap& map, int factor, const Value& whole,
                Random& random, Tried& tried) {
  const Factor& about = map.factors[static_cast<size_t>(factor)];
  const bool in_result = find(map, map.result, factor).has_value();
  auto same = [&](const Value& got, Range range) {
    return bit_difference(interpret(got),
                          interpret(part_of(whole, map, map.result, factor, range)));
  };
  const int64_t cut = about.size > 1 ? random.between(1, about.size - 1) : 1;
  const Range ranges[] = {{0, cut}, {cut, about.size}};
  if (about.relation == Relation::reduced) {
    std::vector<Value> parts;
    for (const Range& range : ranges) {
      std::vector<Value> operands;
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        const Value& x = node.inputs[i];
        const bool is_cut = find(map, map.operands[i], factor).has_value();
        operands.push_back(is_cut           ? part_of(x, map, map.operands[i], factor, range)
                           : range.from > 0 ? zeros_like(x)
                                            : x);
      }
      parts.push_back(local(node, map, factor, range, std::move(operands)));
    }
    const Value joined = make_node(op(about.combine), parts);
    CHECK(difference(interpret(joined), whole, 1e-13) == "");
    ++tried.joined;
    return;
  }
  if (about.relation == Relation::whole) return;
  for (const Range& range : ranges) {
    if (range.from == range.to) continue;
    if (about.relation == Relation::plain && (!about.positional || map.has_place)) {
      CHECK(same(local(node, map, factor, range), range) == "");
      ++tried.sliced;
    }
    if (node.inputs.empty()) continue;
    // If the result lacks an affine factor, all of the result depends on the range.
    const Range made = in_result ? range : Range{0, about.size};
    const Value changed = interpret(elsewhere_changed(node, map, factor, range, random));
    CHECK(same(part_of(changed, map, map.result, factor, made), made) == "");
    ++tried.changed;
  }
}

// Each factor occurs once in each value, unless it is whole, and the product of an axis' factors is
// its extent.
void check_sizes(const AxisMap& map, const Axes& axes, const Shape& shape, bool is_result) {
  REQUIRE(std::ssize(axes) == shape.size());
  std::vector<int> seen;
  for (int axis = 0; axis < shape.size(); ++axis) {
    int64_t extent = 1;
    bool affine = false;
    for (int factor : axes[static_cast<size_t>(axis)].factors) {
      const Factor& about = map.factors[static_cast<size_t>(factor)];
      if (about.relation != Relation::whole) CHECK(std::ranges::find(seen, factor) == seen.end());
      seen.push_back(factor);
      extent *= about.size;
      affine |= about.relation == Relation::affine;
      if (is_result) CHECK(about.relation != Relation::reduced);
    }
    // The result depends on no element of an operand's axis without factors.
    const bool unread = !is_result && axes[static_cast<size_t>(axis)].factors.empty();
    if (is_result || (!affine && !unread)) CHECK(extent == shape[axis]);
  }
}

Tried try_op(const OpDef& def, uint64_t seeds) {
  Tried tried;
  const std::vector<DType> dtypes = dtypes_of(def);
  const bool wide = std::ranges::find(dtypes, DType::f64) != dtypes.end();
  for (uint64_t seed = 0; seed < seeds; ++seed) {
    Random random(hash_combine(hash_text(def.name), seed));
    CaseSource source{.random = random, .operand = [&](const Type& type, double low, double high) {
                        return random_values(type, low, high, random);
                      }};
    source.extents = {1, 2, 3, 4, 6};
    const Value value =
        evaluated_operands(draw_case(def, wide ? DType::f64 : dtypes.front(), source));
    const AxisMap map = axis_map(*value.node());
    INFO(def.name << to_string(value->attrs) << " seed " << seed << ": " << to_string(map));
    check_sizes(map, map.result, value.shape(), true);
    for (size_t i = 0; i < value->inputs.size(); ++i)
      check_sizes(map, map.operands[i], value->inputs[i].shape(), false);
    const Value whole = interpret(value);
    for (int factor = 0; factor < static_cast<int>(map.factors.size()); ++factor)
      if (value.elements() > 0) try_factor(*value.node(), map, factor, whole, random, tried);
  }
  return tried;
}

Value of(const Shape& shape, DType dtype = DType::f32) { return input({dtype, shape}, 0); }
std::string map_of(const Value& value) { return to_string(axis_map(*value.node())); }
}  // namespace

TEST_CASE("a slice of every op along every factor is computed from slices of its operands") {
  Tried all;
  for (const OpDef* def : registered_ops()) {
    if (!has_cases(*def) || !is_in_part(def->name)) continue;
    const Tried tried = try_op(*def, 12);
    INFO(def->name);
    if (def->name != "scalar")  // its case has no axes
      CHECK(tried.sliced + tried.joined + tried.changed > 0);
    all.sliced += tried.sliced;
    all.joined += tried.joined;
    all.changed += tried.changed;
  }
  MESSAGE(all.sliced << " slices, " << all.joined << " joined sums, " << all.changed
                     << " with other elements elsewhere");
}

TEST_CASE("axis maps relate the axes of operands and results") {
  const Value x = of({4, 6});
  CHECK(map_of(exp(x)) == "([a, b]) -> [a, b]");
  CHECK(map_of(matmul(x, of({6, 5}))) == "([a, c], [c, b]) -> [a, b], c reduced");
  CHECK(map_of(matmul(of({2, 4, 6}), of({1, 6, 5}))) ==
        "([a, b, d], [1, d, c]) -> [a, b, c], d reduced");
  CHECK(map_of(reshape(x, {2, 2, 6})) == "([ab, c]) -> [a, b, c]");
  CHECK(map_of(reshape(x, {24})) == "([a, b]) -> [ab]");
  CHECK(map_of(reshape(x, {3, 8})) == "([c, d]) -> [a, b], a whole, b whole, c whole, d whole");
  CHECK(map_of(reshape(x, {4, 1, 6})) == "([a, b]) -> [a, 1, b]");
  CHECK(map_of(permute(of({2, 3, 5}), {2, 0, 1})) == "([b, c, a]) -> [a, b, c]");
  CHECK(map_of(slice(x, 1, 1, 4)) == "([a, b]) -> [a, b], b affine");
  CHECK(map_of(concat({x, of({4, 2})}, 1)) == "([a, b], [a, b]) -> [a, b], b affine");
  CHECK(map_of(sum(x, {.axes = {1}, .keepdim = true})) == "([a, b]) -> [a, 1], b reduced");
  CHECK(map_of(gather(x, of({3}, DType::i32), 0)) == "([a, c], [b]) -> [b, c], a whole");
  CHECK(map_of(scatter_add(x, of({3}, DType::i32), of({3, 6}))) ==
        "([a, c], [b], [b, c]) -> [a, c], a positional, b reduced");
  CHECK(map_of(conv(of({2, 6, 5, 5}), of({4, 3, 3, 3}), {}, {.groups = 2})) ==
        "([a, bd, e, g], [bc, d, f, h]) -> [a, bc, e, g], d reduced, e affine, f whole, g affine, "
        "h whole");
  CHECK(map_of(iota({4, 6}, 1)) == "() -> [a, b], b positional");
  // The map of a composite comes from its decomposition.
  CHECK(map_of(gelu(x)) == "([a, b]) -> [a, b]");
  CHECK(map_of(softmax(x, 1)) == "([a, b]) -> [a, b], b whole");
  const Shape all{2, 4, 8, 16};
  const Value back = make_node(op("attention_gradient"), {of(all), of(all), of(all), of(all)},
                               {{"causal", int64_t{1}}, {"scale", 0.5}});
  CHECK(map_of(back) ==
        "([a, c, d, e], [a, c, d, e], [a, c, d, e], [a, c, d, e]) -> "
        "[a, bc, d, e], b whole, d whole, d positional, e whole");
  auto heads = [] { return of({2, 4, 8, 16}); };
  CHECK(map_of(attention(heads(), heads(), heads())) ==
        "([a, b, c, e], [a, b, f, e], [a, b, f, d]) -> [a, b, c, d], e whole, f whole");
}

TEST_CASE("an operand combined with its own transpose is read whole") {
  static const OpDef folded{
      .name = "test_plus_transposed",
      .infer = [](std::span<const Value> inputs, const Attrs&) { return inputs[0].type(); },
      .decompose = [](const Node& node) -> Value {
        return node.inputs[0] + transpose(node.inputs[0]);
      },
  };
  CHECK(map_of(make_node(folded, {of({4, 4})})) == "([a, a]) -> [a, a], a whole");
}
