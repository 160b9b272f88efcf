#include "weft/ops/collective.h"

#include "weft/ir/axis_map.h"
#include "weft/ops/apply.h"

namespace weft {
namespace {
constexpr std::string_view no_gradient = "the pass that shards a step makes it, behind autodiff";

Type scattered_type(std::span<const Tensor> inputs, const Attrs& attrs) {
  Type type = inputs[0].type();
  const int axis = axis_of(type.shape, attrs.integer("axis"));
  const int64_t ranks = attrs.integer("ranks");
  WEFT_ASSERT(type.shape[axis] % ranks == 0, "{} ranks cannot share axis {} of {}", ranks, axis,
              to_string(type.shape));
  type.shape[axis] /= ranks;
  return type;
}
Type gathered_type(std::span<const Tensor> inputs, const Attrs& attrs) {
  Type type = inputs[0].type();
  type.shape[axis_of(type.shape, attrs.integer("axis"))] *= attrs.integer("ranks");
  return type;
}

// Along its own axis a result depends on all of the operand.
AxisMap axes_beside(const Node& node) {
  AxisMap map(node);
  const int own = static_cast<int>(node.attrs.integer("axis"));
  for (int axis = 0; axis < node.type.shape.size(); ++axis) {
    if (axis != own) {
      map.relate(node, {.size = node.type.shape[axis]}, {{AxisMap::of_result, axis}, {0, axis}});
      continue;
    }
    const Factor made{.size = node.type.shape[axis], .relation = Relation::whole};
    const Factor read{.size = node.inputs[0].dim(axis), .relation = Relation::whole};
    map.relate(node, made, {{AxisMap::of_result, axis}});
    map.relate(node, read, {{0, axis}});
  }
  return map;
}

double combinations(const Node& node) {
  return static_cast<double>(node.type.elements() * (node.attrs.integer("ranks") - 1));
}
double none(const Node&) { return 0; }

const OpDef& all_reduce_def = define({
    .name = "all_reduce",
    .kind = OpKind::collective,
    .doc = "the operands of attr ranks along attr mesh, combined in order by attr combine",
    .infer = same_type,
    .flops = combinations,
    .axes =
        [](const Node& node) {
          return axis_by_axis(node, [](const Node& each, int axis) {
            return Factor{.size = each.type.shape[axis]};
          });
        },
    .test = {.integers = true, .booleans = true, .no_gradient = no_gradient},
});
const OpDef& reduce_scatter_def = define({
    .name = "reduce_scatter",
    .kind = OpKind::collective,
    .doc = "this rank's part, along attr axis, of the sum of the ranks' operands, in their order",
    .infer = scattered_type,
    .flops = combinations,
    .axes = axes_beside,
    .test = {.integers = true, .no_gradient = no_gradient},
});
const OpDef& all_gather_def = define({
    .name = "all_gather",
    .kind = OpKind::collective,
    .doc = "the operands of attr ranks along attr mesh, concatenated along attr axis",
    .infer = gathered_type,
    .flops = none,
    .axes = axes_beside,
    .test = {.integers = true, .booleans = true, .stored = true, .no_gradient = no_gradient},
});
}  // namespace

Tensor all_reduce(const Tensor& x, const MeshAxis& mesh, std::string_view combine) {
  return make_node(all_reduce_def, {x},
                   {{"mesh", mesh.name}, {"ranks", mesh.size}, {"combine", std::string(combine)}});
}
Tensor reduce_scatter(const Tensor& x, const MeshAxis& mesh, int axis) {
  return make_node(reduce_scatter_def, {x},
                   {{"mesh", mesh.name}, {"ranks", mesh.size}, {"axis", int64_t{axis}}});
}
Tensor all_gather(const Tensor& x, const MeshAxis& mesh, int axis, bool again,
                  std::string_view reader) {
  Attrs attrs{{"mesh", mesh.name}, {"ranks", mesh.size}, {"axis", int64_t{axis}}};
  if (again) attrs = attrs.with({"again", int64_t{1}});
  if (!reader.empty()) attrs = attrs.with({"reader", std::string(reader)});
  return make_node(all_gather_def, {x}, attrs);
}

Collective collective_of(const Node& node) {
  using enum Collective::Kind;
  WEFT_ASSERT(node.op->kind == OpKind::collective, "{} is no collective", node.op->name);
  Collective made{.kind = node.op == &all_reduce_def       ? all_reduce
                          : node.op == &reduce_scatter_def ? reduce_scatter
                                                           : all_gather,
                  .mesh_axis = node.attrs.text("mesh"),
                  .ranks = node.attrs.integer("ranks")};
  if (made.kind == all_reduce)
    made.combine = node.attrs.text("combine");
  else
    made.axis = static_cast<int>(node.attrs.integer("axis"));
  if (node.attrs.has("reader")) made.reader = node.attrs.text("reader");
  return made;
}

}  // namespace weft
