// Sharding: makes the graph of one rank from that of the whole step, for one mesh axis at a time.
// The pass walks from inputs to roots. What an axis map calls plain, a rank computes for its part
// of the axis; what it calls reduced gives a partial sum, which stays one through linear operations
// and is added over the ranks where a reader needs the sum. A composite that mixes the elements of
// an axis is opened, at the extents of the whole, and its operations are sharded one by one. Where
// an operation needs all of a cut axis, its parts are gathered.
//
// State that is cut along the axis of the data (ZeRO, Rajbhandari et al. 2020) is gathered for all
// operations but pointwise ones and sums. What is assigned to it is computed in the same parts,
// from gradients that are added in parts.
#include "weft/passes/graph/shard.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "weft/ir/op_def.h"
#include "weft/ops/collective.h"
#include "weft/ops/ops.h"
#include "weft/ops/random.h"
#include "weft/passes/graph/cuts.h"
#include "weft/passes/graph/fold.h"

namespace weft {
namespace {
using enum Held::Kind;

class Sharder {
 public:
  Sharder(const MeshAxis& mesh, const PassOptions& options)
      : mesh_(mesh), options_(options), index_(variable_leaf(mesh.index)) {}

  Graph run(const Graph& graph, std::span<const Layout> inputs) {
    Graph made;
    wanted_ = wanted_parts(graph, mesh_);
    for (size_t i = 0; i < graph.inputs.size(); ++i) {
      const Value& input = graph.inputs[i];
      const Held held = held_in(inputs[i], mesh_);
      OriginOverride origin(input->origin);
      Value part = input;
      if (held.is(split))
        part = make_leaf(*input->op, {input.dtype(), shape_of(input, held)}, input->attrs);
      set(input, {part, held});
      made.inputs.push_back(part);
    }
    for (const Value& value : graph.nodes()) visit(value);
    reader_ = {};
    for (const Value& output : graph.outputs) made.outputs.push_back(all_of(output));
    for (const auto& [variable, value] : graph.assignments) {
      visit(variable);
      const Local& target = at(variable);
      made.assignments.push_back({target.value, as(value, target.held)});
    }
    return made;
  }

 private:
  // A Local is the value of one rank. `through` is the operand, the only partial one, that a linear
  // operation passes on: its sum over the ranks may be taken before the operation.
  struct Local {
    Value value;
    Held held;
    int through = -1;
  };

  const Local& at(const Value& value) const { return locals_.at(value.node()); }
  const Held& held(const Value& value) const { return at(value).held; }
  void set(const Value& value, Local local) {
    kept_.push_back(value);
    locals_.insert_or_assign(value.node(), std::move(local));
  }

  Shape shape_of(const Value& value, const Held& held) const {
    return part_shape(value.shape(), {mesh_.name, held.axis, held.before}, mesh_.size);
  }

  // ---- one operation

  void visit(const Value& value) {
    if (locals_.contains(value.node())) return;
    const OriginOverride origin(value->origin);
    const Node& node = *value.node();
    if (node.inputs.empty()) return visit_leaf(value);
    reads_backward_ = node.origin.backward;
    if (opening_ == 0) reader_ = node.op->name;
    if (visit_linear(value)) return;
    for (const Value& input : node.inputs) settle(input);
    const bool has_split = std::ranges::any_of(
        node.inputs, [&](const Value& input) { return is_read_split(node, input); });
    if (!has_split) return set(value, {on_whole(value), {}});
    const AxisMap map = axis_map(node);
    const std::vector<Cut> cuts = cuts_of(node, map);
    const bool closed = stays_closed(map, cuts);
    if (node.op->decompose != nullptr && !closed && !is_in_parts(node, map, cuts))
      return open(value);
    const std::optional<Cut> cut = closed ? cuts.front() : chosen(node, map, cuts);
    set(value, cut ? by_parts(value, map, *cut) : Local{on_whole(value), {}});
  }

  void visit_leaf(const Value& value) {
    if (value->variable == nullptr) return set(value, {value, {}});
    Held held = held_in(value->variable->layout, mesh_);
    if (!held.is(split)) return set(value, {value, held});
    held.stored = mesh_.name == data_axis;
    set(value, {variable_leaf(value->variable, shape_of(value, held)), held});
  }

  // Operations of partial sums that are the same before and after the sum.
  bool visit_linear(const Value& value) {
    const Node& node = *value.node();
    int partials = 0, last = -1;
    for (size_t i = 0; i < node.inputs.size(); ++i)
      if (held(node.inputs[i]).is(partial)) ++partials, last = static_cast<int>(i);
    if (partials == 0 || !is_linear(node, [&](const Value& input) { return held(input); }))
      return false;
    const Value sums = with_inputs(value, [&](const Value& input) { return at(input).value; });
    set(value, {sums, {.kind = partial}, partials == 1 ? last : -1});
    return true;
  }
  // Returns the cut of each split operand; an operand whose cut no factor has, or that is not
  // split, has none.
  std::vector<Cut> cuts_of(const Node& node, const AxisMap& map) const {
    std::vector<Cut> cuts(node.inputs.size());
    for (size_t i = 0; i < cuts.size(); ++i) {
      const Held& own = held(node.inputs[i]);
      if (!is_read_split(node, node.inputs[i])) continue;
      const FactoredAxis& axis = map.operands[i][static_cast<size_t>(own.axis)];
      cuts[i] = cut_of(map, axis, own.before, mesh_.size).value_or(Cut());
    }
    return cuts;
  }
  // Returns whether a composite computes parts of its result from the same parts of its operands.
  bool is_in_parts(const Node& node, const AxisMap& map, const std::vector<Cut>& cuts) const {
    for (size_t i = 0; i < cuts.size(); ++i)
      if (is_read_split(node, node.inputs[i]) && !is_plain(map, cuts[i])) return false;
    return true;
  }
  // Implements the fault: returns whether to compute a part of the result from a part of the first
  // operand although it depends on the whole.
  bool stays_closed(const AxisMap& map, const std::vector<Cut>& cuts) const {
    return options_.has_fault("shard-opens-parts") && cuts.front().factor >= 0 &&
           split_by(map, map.result, cuts.front());
  }
  // Returns the cut by which the operation is computed: that of the operands with the most bytes,
  // as the others are exchanged; stored ones come last.
  std::optional<Cut> chosen(const Node& node, const AxisMap& map,
                            const std::vector<Cut>& cuts) const {
    std::optional<Cut> best;
    std::tuple<bool, bool, size_t> best_rank;
    for (const Cut& cut : cuts) {
      const bool plain = is_plain(map, cut);
      if (!plain && !is_reduced(map, cut)) continue;
      size_t bytes = 0;
      bool is_stored = true;
      for (size_t i = 0; i < cuts.size(); ++i) {
        if (cuts[i] != cut) continue;
        bytes += node.inputs[i].type().bytes();
        is_stored = is_stored && held(node.inputs[i]).stored;
      }
      const std::tuple rank(!is_stored, plain, bytes);
      if (!best || rank > best_rank) best = cut, best_rank = rank;
    }
    return best;
  }

  Local by_parts(const Value& value, const AxisMap& map, const Cut& cut) {
    const Node& node = *value.node();
    const Factor& factor = map.factors[static_cast<size_t>(cut.factor)];
    const bool reduces = factor.relation == Relation::reduced;
    std::vector<Value> inputs;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const std::optional<Held> own = split_by(map, map.operands[i], cut);
      inputs.push_back(own       ? part_of(node.inputs[i], *own)
                       : reduces ? share_of(node.inputs[i])
                                 : all_of(node.inputs[i]));
    }
    const std::optional<Held> result = split_by(map, map.result, cut);
    Part part{.shape = result ? shape_of(value, *result) : value.shape(),
              .axis = result ? result->axis : 0,
              .count = factor.size / mesh_.size,
              .factor = cut.factor};
    const Value made =
        make_node(*node.op, std::move(inputs), attrs_for(node, map, part), node.annotations);
    if (!reduces) {
      Held parts = result.value();
      parts.stored = reads_only_stored(node);
      return {made, parts};
    }
    if (factor.combine == "add") return {made, {.kind = partial}};
    return {all_reduce(made, mesh_, combination(factor, made.dtype())), {}};
  }

  // Returns whether an operation reads no parts but stored ones.
  bool reads_only_stored(const Node& node) const {
    return std::ranges::none_of(node.inputs, [&](const Value& input) {
      return held(input).is(split) && !held(input).stored;
    });
  }

  // Shards the operations that a composite consists of.
  void open(const Value& value) {
    const std::vector<Value> nodes = decomposition(*value.node());
    ++opening_;
    for (const Value& node : nodes) visit(node);
    --opening_;
    const Value& result = nodes.empty() ? value->inputs[0] : nodes.back();
    set(value, at(result));
    opened_.insert_or_assign(value.node(), result);
  }

  Value on_whole(const Value& value) {
    return with_inputs(value, [&](const Value& input) { return all_of(input); });
  }

  // ---- state in parts

  // Returns whether an operation reads its part of an operand, and not all of it.
  bool is_read_split(const Node& node, const Value& input) const {
    if (!held(input).is(split)) return false;
    return !held(input).stored || is_pointwise(node) || node.op->kind == OpKind::reduce;
  }

  // Adds a partial value in parts where parts are wanted, before an operation reads it that is not
  // linear, as the norm of a gradient does, which is then a sum over parts.
  void settle(const Value& value) {
    const Value known = resolved(value);
    const auto wanted = wanted_.find(known.node());
    if (wanted == wanted_.end() || !held(known).is(partial)) return;
    const Value part = part_of(known, wanted->second);
    set(known, {part, wanted->second});
  }

  // ---- conversions; each is made once

  Value as(const Value& value, const Held& held) {
    if (held.is(whole)) return all_of(value);
    return held.is(split) ? part_of(value, held) : share_of(value);
  }

  // Returns the value that every rank has whole.
  Value all_of(const Value& value) {
    const Value& known = resolved(value);
    const Local local = at(known);
    if (local.held.is(whole)) return local.value;
    const bool again = local.held.stored && reads_backward_;
    auto& wholes = again ? again_ : wholes_;
    if (const auto found = wholes.find(known.node()); found != wholes.end()) return found->second;
    const OriginOverride origin(known->origin);
    const Value made = local.held.is(split) ? all_parts(known, again) : summed(known);
    return wholes[known.node()] = made;
  }
  // Parts are gathered where they have the fewest bytes: before a broadcast, behind a narrowing
  // cast. The backward pass gathers stored parts again, so that the whole is not kept for it.
  Value all_parts(const Value& value, bool again) {
    const Local local = at(value);
    if (is_pointwise(*value.node()) && value->inputs.size() == 1 &&
        held(value->inputs[0]).is(split) && value->inputs[0].type().bytes() <= value.type().bytes())
      return on_whole(value);
    return gathered(local.value, local.held, mesh_, again,
                    local.held.stored ? std::string_view() : reader_);
  }
  // A sum is taken as far up as its bytes do not grow: all readers share it there, and it is
  // scaled once.
  Value summed(const Value& value) {
    const Local local = at(value);
    if (local.through >= 0) {
      const Value& input = value->inputs[static_cast<size_t>(local.through)];
      if (input.type().bytes() <= value.type().bytes() && input.dtype() == value.dtype())
        return on_whole(value);
    }
    return options_.has_fault("shard-forgets-sums") ? local.value : all_reduce(local.value, mesh_);
  }
  // Returns what this rank contributes to a value that is the sum over the ranks: a value that all
  // of them have counts on the first rank alone.
  Value share_of(const Value& value) {
    const Value& known = resolved(value);
    if (held(known).is(partial)) return at(known).value;
    Value all = all_of(known);
    if (uniform_value(known) == 0.0 || options_.has_fault("shard-adds-everywhere")) return all;
    return select(broadcast_to(index_ == 0, all.shape()), all, zeros_like(all));
  }

  // Returns this rank's part of a value.
  Value part_of(const Value& value, const Held& wanted) {
    const Value& known = resolved(value);
    const Local local = at(known);
    if (local.held.is(split) && local.held.axis == wanted.axis &&
        local.held.before == wanted.before)
      return local.value;
    const auto key = std::tuple(known.node(), wanted.axis, wanted.before);
    if (const auto found = parts_.find(key); found != parts_.end()) return found->second;
    const OriginOverride origin(known->origin);
    return parts_[key] = made_part(known, wanted);
  }
  Value made_part(const Value& value, const Held& wanted) {
    const Local local = at(value);
    const Shape shape = shape_of(value, wanted);
    if (!local.held.is(partial) || local.through >= 0) {
      if (Value own = computed_part(value, wanted, shape); own.defined()) return own;
    } else if (wanted.before == 1 && !wholes_.contains(value.node())) {
      return reduce_scatter(local.value, mesh_, wanted.axis);
    }
    return cut_out(all_of(value), wanted, place(), mesh_.size);
  }
  // Computes the part of a value that is cheaper to compute than to cut: of a constant, of random
  // numbers, of an elementwise operation or a view. Returns an empty value for others.
  Value computed_part(const Value& value, const Held& wanted, const Shape& shape) {
    const Node& node = *value.node();
    if (node.op->leaf == LeafKind::scalar)
      return make_leaf(*node.op, {node.type.dtype, shape}, node.attrs);
    const AxisMap map = axis_map(node);
    const std::optional<Cut> cut =
        cut_of(map, map.result[static_cast<size_t>(wanted.axis)], wanted.before, mesh_.size);
    if (!cut) return {};
    const Factor& factor = map.factors[static_cast<size_t>(cut->factor)];
    const bool is_placed = factor.positional && map.has_place;
    if (!is_placed && !is_plain(map, *cut)) return {};
    const Part part{.shape = shape,
                    .axis = wanted.axis,
                    .count = factor.size / mesh_.size,
                    .factor = cut->factor};
    const Attrs attrs = attrs_for(node, map, part);
    if (is_placed) return cut->before == 1 ? placed_part(node, shape, wanted.axis, attrs) : Value();
    if (node.op->leaf == LeafKind::iota)
      return make_leaf(*node.op, {node.type.dtype, shape}, attrs);
    if (!is_pointwise(node)) return {};
    std::vector<Value> inputs;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const std::optional<Held> own = split_by(map, map.operands[i], *cut);
      inputs.push_back(own ? part_of(node.inputs[i], *own) : all_of(node.inputs[i]));
    }
    return make_node(*node.op, std::move(inputs), attrs, node.annotations);
  }
  // Returns the part of what depends on its place: an index, or random numbers.
  Value placed_part(const Node& node, const Shape& shape, int axis, const Attrs& attrs) {
    const int64_t every = shape[axis] * place_in_whole(node).strides[axis];
    if (node.op->leaf == LeafKind::iota) {
      const Value first = make_leaf(*node.op, {node.type.dtype, shape}, attrs);
      return first + broadcast_to(cast(place() * every, node.type.dtype), shape);
    }
    Value part = place();
    if (node.inputs.size() > 1) {  // a part already, which the ranks cut along the same axis
      if (node.attrs.integer("every") != every * mesh_.size) return {};
      part = all_of(node.inputs[1]) * mesh_.size + part;
    }
    return uniform_part(all_of(node.inputs[0]), part, attrs, every);
  }
  // Returns where this rank is along the axis.
  Value place() const {
    return options_.has_fault("shard-forgets-places") ? zeros({}, DType::i64) : index_;
  }
  // Returns the value that an opened composite equals.
  const Value& resolved(const Value& value) const {
    const auto found = opened_.find(value.node());
    return found == opened_.end() ? value : resolved(found->second);
  }

  const MeshAxis& mesh_;
  const PassOptions& options_;
  Value index_;  // of this rank
  std::unordered_map<const Node*, Local> locals_;
  std::unordered_map<const Node*, Value> opened_, wholes_, again_;
  WantedParts wanted_;
  bool reads_backward_ = false;  // whether a node of the backward pass is visited
  std::string_view reader_;      // the operation of the whole step that is visited
  int opening_ = 0;              // composites that are being opened
  std::map<std::tuple<const Node*, int, int64_t>, Value> parts_;
  std::vector<Value> kept_;  // nodes of opened composites, which the maps name by address
};
}  // namespace

// Faults: "shard-forgets-sums" takes a rank's partial sum for the whole, "shard-forgets-places"
// gives all ranks the part of the first one, "shard-adds-everywhere" counts what all ranks have
// once for each, "shard-opens-parts" opens composites at a rank's extents.
Graph shard_along(const Graph& graph, const MeshAxis& mesh, std::span<const Layout> inputs,
                  const PassOptions& options) {
  const Graph made = Sharder(mesh, options).run(graph, inputs);
  return join_sums(made, mesh);
}

Graph shard(const Graph& graph, const PassOptions& options) {
  if (options.step.mesh == nullptr) {
    for (const Value& value : graph.nodes())
      if (value->variable != nullptr) must_be_whole(*value->variable);
    return graph;
  }
  Graph made = graph;
  for (const MeshAxis& mesh : options.step.mesh->axes) {
    if (mesh.size == 1) continue;
    std::vector<Layout> inputs(made.inputs.size());
    for (size_t i = 0; mesh.name == data_axis && i < inputs.size(); ++i)
      if (made.inputs[i].rank() > 0) inputs[i].splits = {{mesh.name, 0}};
    made = shard_along(made, mesh, inputs, options);
  }
  return made;
}

}  // namespace weft
