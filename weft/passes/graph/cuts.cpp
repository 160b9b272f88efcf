#include "weft/passes/graph/cuts.h"

#include <algorithm>

#include "weft/ir/op_def.h"
#include "weft/ops/collective.h"
#include "weft/ops/ops.h"
#include "weft/passes/graph/fold.h"

namespace weft {

namespace {
// Returns whether a cast changes no value, so that sums may be cast before they are added.
bool is_exact_cast(const Node& node) {
  const DType from = node.inputs[0].dtype(), to = node.type.dtype;
  return is_float(from) && is_float(to) && size_of(from) < size_of(to);
}
// Returns a shape with the split axis as two: the segments, and the extent of one.
Shape in_segments(const Shape& shape, const Held& held) {
  Shape segments;
  for (int axis = 0; axis < shape.size(); ++axis) {
    if (axis == held.axis) segments.push_back(held.before);
    segments.push_back(axis == held.axis ? shape[axis] / held.before : shape[axis]);
  }
  return segments;
}
}  // namespace

Held held_in(const Layout& layout, const MeshAxis& mesh) {
  if (layout.is_partial(mesh.name)) return {.kind = Held::Kind::partial};
  const Split* const cut = layout.split(mesh.name);
  return cut == nullptr ? Held() : Held{Held::Kind::split, cut->axis, cut->before};
}

std::optional<Cut> cut_of(const AxisMap& map, const FactoredAxis& axis, int64_t before,
                          int64_t ranks) {
  for (int factor : axis.factors) {
    const int64_t size = map.factors[static_cast<size_t>(factor)].size;
    if (before < size && size % (before * ranks) == 0) return Cut{factor, before};
    if (size == 0 || before % size != 0) return std::nullopt;
    before /= size;
  }
  return std::nullopt;
}

std::optional<Held> split_by(const AxisMap& map, const std::vector<FactoredAxis>& axes,
                             const Cut& cut) {
  for (size_t axis = 0; axis < axes.size(); ++axis) {
    int64_t before = cut.before;
    for (int factor : axes[axis].factors) {
      if (factor == cut.factor) return Held{Held::Kind::split, static_cast<int>(axis), before};
      before *= map.factors[static_cast<size_t>(factor)].size;
    }
  }
  return std::nullopt;
}

bool is_plain(const AxisMap& map, const Cut& cut) {
  if (cut.factor < 0) return false;
  const Factor& factor = map.factors[static_cast<size_t>(cut.factor)];
  return factor.relation == Relation::plain && !factor.positional &&
         (factor.count.empty() || cut.before == 1);
}
bool is_reduced(const AxisMap& map, const Cut& cut) {
  return cut.factor >= 0 &&
         map.factors[static_cast<size_t>(cut.factor)].relation == Relation::reduced;
}

std::string_view combination(const Factor& factor, DType dtype) {
  if (dtype != DType::boolean) return factor.combine;
  return factor.combine == "maximum" ? "logical_or" : "logical_and";
}

bool is_pointwise(const Node& node) {
  return node.op->kind == OpKind::elementwise || node.op->view != nullptr;
}

bool is_linear(const Node& node, const std::function<Held(const Value&)>& held) {
  const auto is_partial = [&](size_t i) { return held(node.inputs[i]).is(Held::Kind::partial); };
  const auto adds_nothing = [&](const Value& input) {
    return held(input).is(Held::Kind::partial) ||
           (held(input).is(Held::Kind::whole) && uniform_value(input) == 0.0);
  };
  const auto all_add_nothing = [&](size_t first) {
    return std::ranges::all_of(node.inputs.begin() + static_cast<std::ptrdiff_t>(first),
                               node.inputs.end(), adds_nothing);
  };
  const auto is_whole = [&](size_t i) { return held(node.inputs[i]).is(Held::Kind::whole); };
  switch (node.op->scalar) {
    case ScalarOp::identity:
    case ScalarOp::neg:
      return true;
    case ScalarOp::cast:
      return is_exact_cast(node);
    case ScalarOp::add:
    case ScalarOp::sub:
      return all_add_nothing(0);
    case ScalarOp::mul:
      return is_partial(0) ? is_whole(1) : is_whole(0);
    case ScalarOp::div:
      return is_partial(0) && is_whole(1);
    case ScalarOp::select:
      return is_whole(0) && all_add_nothing(1);
    default:
      break;
  }
  if (node.op->kind == OpKind::reduce) return node.op->combine == ScalarOp::add;
  if (node.op->kind != OpKind::movement) return false;
  return node.attrs.has("value") ? node.attrs.number("value") == 0 : all_add_nothing(0);
}

Value gathered(const Value& part, const Held& held, const MeshAxis& mesh, bool again,
               std::string_view reader) {
  if (held.before == 1) return all_gather(part, mesh, held.axis, again, reader);
  Shape shape = part.shape();
  shape[held.axis] *= mesh.size;
  const Value segments = reshape(part, in_segments(part.shape(), held));
  return reshape(all_gather(segments, mesh, held.axis + 1, again, reader), shape);
}

Value cut_out(const Value& whole, const Held& held, const Value& place, int64_t ranks) {
  if (held.before == 1) return part_at(whole, held.axis, place, ranks);
  Shape shape = whole.shape();
  shape[held.axis] /= ranks;
  const Value segments = reshape(whole, in_segments(whole.shape(), held));
  return reshape(part_at(segments, held.axis + 1, place, ranks), shape);
}

WantedParts wanted_parts(const Graph& graph, const MeshAxis& mesh) {
  WantedParts wanted;
  for (const auto& [variable, value] : graph.assignments)
    if (const Held held = held_in(variable->variable->layout, mesh); held.is(Held::Kind::split))
      wanted.emplace(value.node(), held);
  const std::vector<Value> nodes = graph.nodes();
  for (auto value = nodes.rbegin(); !wanted.empty() && value != nodes.rend(); ++value) {
    const Node& node = *value->node();
    const auto found = wanted.find(&node);
    if (found == wanted.end() || !is_pointwise(node)) continue;
    const AxisMap map = axis_map(node);
    const auto cut = cut_of(map, map.result[static_cast<size_t>(found->second.axis)],
                            found->second.before, mesh.size);
    if (!cut) continue;
    for (size_t i = 0; i < node.inputs.size(); ++i)
      if (const std::optional<Held> own = split_by(map, map.operands[i], *cut))
        wanted.emplace(node.inputs[i].node(), *own);
  }
  return wanted;
}

}  // namespace weft
