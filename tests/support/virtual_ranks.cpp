#include "tests/support/virtual_ranks.h"

#include "tests/support/interpreter.h"
#include "tests/support/values.h"
#include "weft/base/memory/storage.h"
#include "weft/ir/op_def.h"
#include "weft/ir/variable.h"
#include "weft/ops/collective.h"
#include "weft/ops/ops.h"

namespace weft::testing {
namespace {
// Returns a shape with the split axis as three: segments, ranks, the part of one.
Shape by_rank(const Shape& shape, const Split& split, int64_t ranks) {
  Shape made;
  for (int axis = 0; axis < shape.size(); ++axis) {
    if (axis != split.axis) {
      made.push_back(shape[axis]);
      continue;
    }
    for (int64_t extent : {split.before, ranks, shape[axis] / split.before / ranks})
      made.push_back(extent);
  }
  return made;
}

std::vector<Value> exchanged(const Node& node, const std::vector<Value>& operands) {
  const Collective what = collective_of(node);
  const auto ranks = static_cast<int64_t>(operands.size());
  std::vector<Value> results;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    if (what.kind == Collective::Kind::all_gather) {
      results.push_back(interpret(concat(operands, what.axis)));
      continue;
    }
    Value sum = combined(operands, what.combine);
    if (what.kind == Collective::Kind::reduce_scatter) {
      const int64_t count = sum.dim(what.axis) / ranks;
      sum = slice(sum, what.axis, rank * count, (rank + 1) * count);
    }
    results.push_back(interpret(sum));
  }
  return results;
}
}  // namespace

Value combined(std::span<const Value> operands, std::string_view combine) {
  const DType dtype = operands.front().dtype();
  const auto wide = [&](const Value& value) {
    return computes_wider(dtype) ? cast(value, DType::f32) : value;
  };
  Value result = wide(operands.front());
  for (const Value& operand : operands.subspan(1))
    result = make_node(op(combine), {result, wide(operand)});
  return interpret(cast(result, dtype));
}

Value part_of(const Value& whole, const Layout& layout, const MeshAxis& mesh, int64_t rank) {
  if (layout.is_partial(mesh.name)) return rank == 0 ? whole : interpret(zeros_like(whole));
  const Split* const split = layout.split(mesh.name);
  if (split == nullptr) return whole;
  const Value ranks = reshape(whole, by_rank(whole.shape(), *split, mesh.size));
  return interpret(reshape(slice(ranks, split->axis + 1, rank, rank + 1),
                           part_shape(whole.shape(), *split, mesh.size)));
}

Value joined(std::span<const Value> parts, const Layout& layout, const MeshAxis& mesh) {
  if (layout.is_partial(mesh.name)) return combined(parts, "add");
  const Split* const split = layout.split(mesh.name);
  if (split == nullptr) return parts.front();
  Shape whole = parts.front().shape();
  whole[split->axis] *= mesh.size;
  Shape one = by_rank(whole, *split, mesh.size);
  one[split->axis + 1] = 1;
  std::vector<Value> segments;
  for (const Value& part : parts) segments.push_back(reshape(part, one));
  return interpret(reshape(concat(segments, split->axis + 1), whole));
}

const std::vector<Value>& VirtualRanks::of(const VariableState& variable) {
  std::vector<Value>& all = variables_[&variable];
  if (!all.empty()) return all;
  variable.storage->on_host();
  const Value whole = from_buffer(variable.storage->buffer(), variable.type);
  const Value own = interpret(make_node(op("identity"), {whole}));  // a copy
  for (int64_t rank = 0; rank < mesh_.size; ++rank)
    all.push_back(&variable == mesh_.index.get()
                      ? constant(std::vector{static_cast<double>(rank)}, {}, DType::i64)
                      : part_of(own, variable.layout, mesh_, rank));
  return all;
}

std::vector<std::vector<Value>> VirtualRanks::run(const Graph& local, std::span<const Value> inputs,
                                                  std::span<const Layout> layouts) {
  std::unordered_map<const Node*, std::vector<Value>> known;
  for (const Value& value : local.nodes()) {
    const Node& node = *value.node();
    std::vector<Value>& here = known[&node];
    if (node.variable != nullptr) {
      here = of(*node.variable);
      continue;
    }
    std::vector<std::vector<Value>> operands(static_cast<size_t>(mesh_.size));
    for (size_t rank = 0; rank < operands.size(); ++rank)
      for (const Value& input : node.inputs) operands[rank].push_back(known.at(input.node())[rank]);
    if (node.op->kind == OpKind::collective) {
      std::vector<Value> all;
      all.reserve(operands.size());
      for (const auto& each : operands) all.push_back(each.front());
      here = exchanged(node, all);
      continue;
    }
    for (int64_t rank = 0; rank < mesh_.size; ++rank) {
      if (node.op->leaf == LeafKind::input) {
        const auto index = static_cast<size_t>(node.attrs.integer("index"));
        here.push_back(part_of(inputs[index], layouts[index], mesh_, rank));
      } else if (node.op->kind == OpKind::leaf) {
        here.push_back(interpret(value));
      } else {
        here.push_back(
            interpret(make_node(*node.op, operands[static_cast<size_t>(rank)], node.attrs)));
      }
    }
  }
  std::vector<std::vector<Value>> results;
  for (const Value& root : local.roots()) results.push_back(known.at(root.node()));
  return results;
}

std::vector<std::vector<Value>> VirtualRanks::step(const Graph& local,
                                                   std::span<const Value> inputs,
                                                   std::span<const Layout> layouts) {
  std::vector<std::vector<Value>> results = run(local, inputs, layouts);
  for (size_t i = 0; i < local.assignments.size(); ++i)
    variables_[local.assignments[i].variable->variable.get()] = results[local.outputs.size() + i];
  results.resize(local.outputs.size());
  return results;
}
}  // namespace weft::testing
