// Bufferization: turns the fusion groups into launches in a valid order, gives each stored value a
// slot and a physical order of its axes, and inserts copies where a kernel needs another layout of
// an operand.
// This is one file because bufferization is one class: each launch is placed by the slots, layouts
// and copies of those before it.
#include <algorithm>
#include <map>

#include "weft/base/memory/buffer.h"
#include "weft/base/memory/storage.h"
#include "weft/ir/bindings.h"
#include "weft/ir/op_def.h"
#include "weft/passes/fusion/fuse.h"
#include "weft/passes/graph/views.h"
#include "weft/passes/memory/launches.h"

namespace weft {
namespace {

class Bufferizer {
 public:
  Bufferizer(const Graph& graph, const PassOptions& options)
      : graph_(graph), options_(options), uses_(graph), fusion_(fuse(uses_, options)) {}

  Plan run() {
    WEFT_ASSERT(fusion_.order.size() == fusion_.groups.size(),
                "fusion made a cycle: {} of {} kernels can run", fusion_.order.size(),
                fusion_.groups.size());
    for (int group : fusion_.order) emit(fusion_.groups[static_cast<size_t>(group)], group);
    for (const Value& input : graph_.inputs)
      plan_.inputs.push_back({input, placed_.at(input.node())});
    for (const Value& output : graph_.outputs) plan_.outputs.push_back(row_major(output));
    for (const auto& [variable, value] : graph_.assignments)
      plan_.assigns.push_back({placed_.at(variable.node()).slot, row_major(value)});
    follow_moves();
    return std::move(plan_);
  }

 private:
  void emit(const FusionGroup& group, int index) {
    switch (group.kind) {
      case FusionGroup::Kind::leaf:
        return emit_leaf(group.nodes[0]);
      case FusionGroup::Kind::view:
        return emit_view(group.nodes[0]);
      case FusionGroup::Kind::library:
        return emit_library(group, index);
      case FusionGroup::Kind::fused:
        return emit_fused(group, index);
      case FusionGroup::Kind::placed:
        return emit_placed(group.nodes[0]);
    }
  }

  // A Layout says how a value is stored in its own slot: its axes from outermost to innermost,
  // dense or with padded rows.
  struct Layout {
    Dims order;  // empty: row-major
    bool padded = false;
    bool operator==(const Layout&) const = default;
  };
  // Returns the extents including padding.
  static Shape room_of(const Type& type, const Layout& layout) {
    Shape room = type.shape;
    if (!layout.padded || room.size() < 2) return room;
    int64_t& row =
        room[layout.order.empty() ? room.size() - 1 : static_cast<int>(layout.order.back())];
    row = padded_row(row, type.dtype);
    return room;
  }
  static Dims strides_of(const Type& type, const Layout& layout) {
    return dense_strides(room_of(type, layout), layout.order);
  }

  Placement new_slot(const Value& value, const Layout& layout) {
    Slot slot;
    slot.type = value.type();
    slot.value = value;
    slot.bytes = Type{value.dtype(), room_of(value.type(), layout)}.bytes();
    if (value->variable != nullptr) {
      slot.space = Space::state;
      slot.category = value->variable->category;
      slot.variable = index_of(*value->variable, plan_.variables);
      slot.bytes = value->variable->storage->bytes();
    } else if (value->storage != nullptr) {
      slot.space = Space::constant;
      slot.category = Category::constant;
    } else if (value->op->leaf == LeafKind::input) {
      slot.category = Category::input;
      if (options_.lends()) slot.space = Space::argument;
    } else if (uses_.is_root(value.node())) {
      slot.category = Category::output;
    } else if (follows_gradients(value)) {
      slot.category = Category::gradient;
    }
    plan_.slots.push_back(std::move(slot));
    return {static_cast<int>(plan_.slots.size()) - 1, 0, strides_of(value.type(), layout)};
  }

  // Returns whether the backward pass computes the value, or it derives from such a value, as in
  // clipping and updates.
  bool follows_gradients(const Value& value) {
    if (const bool* known = follows_.find(value.node())) return *known;
    const bool follows =
        value->op->kind != OpKind::leaf &&
        (value->origin.backward || std::ranges::any_of(value->inputs, [&](const Value& input) {
           return follows_gradients(input);
         }));
    return follows_[value.node()] = follows;
  }

  void emit_leaf(const Value& value) { placed_[value.node()] = new_slot(value, {}); }

  void emit_view(const Value& value) {
    const Value& input = value->inputs[0];
    std::optional<Placement> at = value->op->view(*value.node(), placed_.at(input.node()));
    if (!at) at = value->op->view(*value.node(), copy_as(input, {}));
    placed_[value.node()] = *at;
  }

  // Emits a concatenation: each part is computed straight into its place, or copied there.
  void emit_placed(const Value& value) {
    const auto axis = static_cast<int>(value->attrs.integer("axis"));
    Placement at = new_slot(value, {});
    placed_[value.node()] = at;
    for (const Value& part : value->inputs) {
      if (!move_into(at, part)) copy_into(at, part);
      at.offset += part.shape()[axis] * at.strides[axis];
    }
  }

  // A Move says where the contents of a former slot are now.
  struct Move {
    Placement to;
    bool strided = false;  // otherwise every access keeps its strides
  };
  // Returns whether the part's slot can become a part of another slot, and records the move. Other
  // kernels may have been chosen for its strides, so these change only for a generated kernel with
  // one reader.
  bool move_into(const Placement& to, const Value& part) {
    const Placement& from = placed_.at(part.node());
    const Slot& slot = plan_.slots[static_cast<size_t>(from.slot)];
    const int64_t byte = to.offset * static_cast<int64_t>(size_of(part.dtype()));
    const bool inner = slot.category == Category::activation || slot.category == Category::gradient;
    if (slot.space != Space::arena || !inner || from.offset != 0 ||
        slot.bytes != part.type().bytes() || moves_.contains(from.slot) ||
        byte % static_cast<int64_t>(buffer_alignment) != 0)
      return false;
    const bool same = same_strides(part.shape(), from.strides, to.strides);
    if (!same) {
      const int* home = fusion_.home.find(part.node());
      const bool generated = home != nullptr && fusion_.groups[static_cast<size_t>(*home)].kind ==
                                                    FusionGroup::Kind::fused;
      if (!generated || uses_.count(part.node()) != 1) return false;
    }
    moves_[from.slot] = {to, !same};
    return true;
  }
  void copy_into(const Placement& to, const Value& part) {
    if (part.elements() == 0) return;
    OriginOverride origin(part->origin);
    Value copy = make_node(op("identity"), {part});
    Launch launch{.kernel = "copy",
                  .body = {copy},
                  .operands = {{part, placed_.at(part.node())}},
                  .results = {{copy, to}},
                  .unfused = {{part->id, FusionRefusal::gathered}}};
    finish(launch);
  }

  void follow_moves() {
    auto follow = [&](Access& access) {
      for (auto move = moves_.find(access.at.slot); move != moves_.end();
           move = moves_.find(access.at.slot)) {
        access.at.slot = move->second.to.slot;
        access.at.offset += move->second.to.offset;
        if (move->second.strided) access.at.strides = move->second.to.strides;
      }
    };
    for (Launch& launch : plan_.launches) {
      std::ranges::for_each(launch.operands, follow);
      std::ranges::for_each(launch.results, follow);
    }
    std::ranges::for_each(plan_.outputs, follow);
    for (Assign& assign : plan_.assigns) follow(assign.value);
  }

  // Returns the placement of the value, dense in the given order of axes and aligned to `alignment`
  // bytes: its own placement if that fits, else that of a copy, which is made once.
  Placement copy_as(const Value& value, const Dims& order, int64_t alignment = 1) {
    const Placement& at = placed_.at(value.node());
    Dims strides = dense_strides(value.shape(), order);
    const bool is_aligned =
        at.offset * static_cast<int64_t>(size_of(value.dtype())) % alignment == 0;
    if (is_aligned && same_strides(value.shape(), at.strides, strides)) return at;
    if (forgets_copy(value, at.slot)) return {at.slot, 0, strides};
    return copied(value, {order});
  }
  Placement copied(const Value& value, const Layout& layout) {
    const Placement& at = placed_.at(value.node());
    const Dims strides = strides_of(value.type(), layout);
    std::vector<int64_t> key(strides.begin(), strides.end());
    auto [made, is_new] = copies_[value.node()].try_emplace(key);
    if (!is_new) return made->second;
    OriginOverride origin(value->origin);
    Value copy = make_node(op("identity"), {value});
    Launch launch;
    if (options_.library->compiler().generates()) {
      launch.kernel = "copy";
      launch.body = {copy};
      launch.operands = {{value, at}};
      launch.unfused = {{value->id, FusionRefusal::copied}};
    } else {
      launch = library_step({.kind = FusionGroup::Kind::library, .nodes = {copy}},
                            options_.library->kernels().choose(*copy.node(), {{at}}).value(), {at});
    }
    made->second = new_slot(copy, layout);
    launch.results = {{copy, made->second}};
    finish(launch);
    return made->second;
  }

  // Implements the fault: returns whether to read the slot with wrong strides. Reads stay within
  // the slot, which grows if it can; otherwise the copy is kept.
  bool forgets_copy(const Value& value, int at) {
    if (!options_.has_fault("bufferize-forgets-copies")) return false;
    Slot& slot = plan_.slots[static_cast<size_t>(at)];
    if (slot.space == Space::arena) slot.bytes = std::max(slot.bytes, value.type().bytes());
    return value.type().bytes() <= slot.bytes;
  }

  Access row_major(const Value& value) { return {value, copy_as(value, {})}; }

  static Launch library_step(const FusionGroup& group, const KernelChoice& choice,
                             const std::vector<Placement>& operands) {
    Launch launch;
    launch.kind = Launch::Kind::library;
    launch.kernel = choice.kernel;
    launch.algorithm = choice.algorithm;
    launch.body = group.nodes;
    launch.workspace = choice.workspace;
    launch.most_workspace = choice.most_workspace;
    launch.packed_bytes = choice.packed_bytes;
    launch.packed_layout = choice.packed_layout;
    launch.objects = choice.objects;
    const std::vector<Value> inputs = group.inputs();
    for (size_t i = 0; i < operands.size(); ++i)
      launch.operands.push_back({inputs[i], operands[i]});
    return launch;
  }

  void emit_library(const FusionGroup& group, int index) {
    const std::vector<Value> stored = stored_values(group, index);
    const std::vector<Value> inputs = group.inputs();
    std::vector<Placement> operands;
    operands.reserve(inputs.size());
    for (const Value& input : inputs) operands.push_back(placed_.at(input.node()));
    if (group.nodes.front()->op->kind == OpKind::collective) return emit_collective(group.nodes[0]);
    const std::optional<KernelChoice> chosen =
        group.nodes.size() == 1
            ? options_.library->kernels().choose(*group.nodes[0].node(), operands)
            : options_.library->kernels().choose_with(group.nodes, stored, operands);
    WEFT_ASSERT(chosen.has_value(), "{} has no kernel for {} with operands of this layout",
                options_.library->name(), group.nodes.front()->op->name);
    const KernelChoice& choice = *chosen;
    for (size_t i = 0; i < operands.size(); ++i)
      if (i < choice.operand_order.size() &&
          !(choice.operand_order[i].empty() && !inputs[i].shape().empty()))
        operands[i] = copy_as(inputs[i], choice.operand_order[i], choice.alignment);
    std::vector<Layout> layouts;
    for (const Value& value : stored) {
      const bool root = uses_.is_root(value.node());
      const bool alike =
          value.shape() == group.nodes.front().shape() ||
          (stored.size() == 1 && value.rank() == static_cast<int>(choice.result_order.size()));
      Layout& layout =
          layouts.emplace_back(alike ? choice.result_order : Dims(), choice.padded_rows && !root);
      if (room_of(value.type(), layout) != value.shape() && joins_state(value))
        layout.padded = false;
    }
    Launch launch = library_step(group, choice, operands);
    for (size_t i = 0; i < stored.size(); ++i)
      launch.results.push_back({stored[i], {-1, 0, strides_of(stored[i].type(), layouts[i])}});
    launch.padded = make_room(launch, choice);
    for (size_t i = 0; i < stored.size(); ++i) {
      const Placement at = placed_[stored[i].node()] = new_slot(stored[i], layouts[i]);
      if (launch.padded) grow(at, stored[i].dtype(), choice.rooms[operands.size() + i]);
      launch.results[i].at = at;
    }
    if (choice.in_place) {
      const Access& operand = launch.operands[static_cast<size_t>(*choice.in_place)];
      if (has_layout_of(launch.results[0], operand)) {
        launch.in_place.emplace_back(0, *choice.in_place);
        take_room_of(operand, launch.results[0]);
      }
    }
    finish(launch);
  }

  // Other ranks read the operand of a collective, at most once: it is dense, in the arena.
  void emit_collective(const Value& value) {
    const Value& input = value->inputs[0];
    Placement from = copy_as(input, {}, buffer_alignment);
    if (plan_.slots[static_cast<size_t>(from.slot)].space != Space::arena) from = copied(input, {});
    Launch launch{.kind = Launch::Kind::collective,
                  .kernel = std::string(value->op->name),
                  .body = {value},
                  .operands = {{input, from}}};
    // A sum replaces its operand, which nobody else reads: the slot is then exchanged as a whole.
    const bool replaces = value.type() == input.type() && uses_.count(input.node()) == 1 &&
                          from.offset == 0 &&
                          plan_.slots[static_cast<size_t>(from.slot)].bytes == value.type().bytes();
    const Placement at = placed_[value.node()] = replaces ? from : new_slot(value, {});
    launch.results = {{value, at}};
    if (replaces) launch.in_place.emplace_back(0, 0);
    finish(launch);
  }

  // Returns whether operands and results can have the padding that makes the kernel faster; results
  // have no slot yet. Operands that cannot be padded are copied, if the copy takes less time than
  // it saves.
  bool make_room(Launch& launch, const KernelChoice& choice) {
    if (choice.rooms.empty()) return false;
    for (size_t i = 0; i < launch.results.size(); ++i) {
      const Room& room = choice.rooms[launch.operands.size() + i];
      const auto& [value, at] = launch.results[i];
      const bool strides_match =
          room.strides.empty() || same_strides(value.shape(), at.strides, room.strides);
      if (room.elements > 0 && (!strides_match || uses_.is_root(value.node()))) return false;
    }
    size_t copies = 0;  // bytes
    for (size_t i = 0; i < launch.operands.size(); ++i)
      if (lacks(choice.rooms[i], launch.operands[i]))
        copies += launch.operands[i].value.type().bytes();
    if (copies > 0 && !saves_time(launch, copies)) return false;
    for (size_t i = 0; i < launch.operands.size(); ++i) {
      const Room& room = choice.rooms[i];
      auto& [value, at] = launch.operands[i];
      if (lacks(room, launch.operands[i])) {
        const Dims& strides = room.strides.empty() ? at.strides : room.strides;
        at = copied(value, {physical_order(value.shape(), strides), true});
      }
      grow(at, value.dtype(), room);
    }
    return true;
  }
  // Returns whether the slot of an operand cannot be padded, because it also holds other values or
  // does not belong to the plan.
  bool lacks(const Room& room, const Access& operand) const {
    if (room.elements == 0) return false;
    const auto& [value, at] = operand;
    const Slot& slot = plan_.slots[static_cast<size_t>(at.slot)];
    const bool inner = slot.category == Category::activation || slot.category == Category::gradient;
    const bool own = slot.space == Space::arena && inner && !moves_.contains(at.slot);
    const bool has_room =
        is_copy(slot) && static_cast<size_t>(room.elements) * size_of(value.dtype()) <= slot.bytes;
    return (!own && !has_room) || at.offset != 0 || slot.type.elements() != value.elements() ||
           !room.strides.empty();
  }
  bool is_copy(const Slot& slot) const {
    return slot.space == Space::state && plan_.variable(slot).copy_of >= 0;
  }
  void grow(const Placement& at, DType dtype, const Room& room) {
    Slot& slot = plan_.slots[static_cast<size_t>(at.slot)];
    slot.bytes = std::max(slot.bytes, static_cast<size_t>(room.elements) * size_of(dtype));
  }
  // Returns whether padding saves more time than the copies take, on a device with known speeds.
  bool saves_time(Launch launch, size_t copied) const {
    const MachineSpec machine = options_.library->meters().spec();
    if (!machine.sustained) return false;
    launch.flops = flops(*launch.body.front().node());
    const double apart = likely_seconds(launch, machine);
    launch.padded = true;
    const double copies = 2 * static_cast<double>(copied) / machine.bytes_per_s;
    return apart - likely_seconds(launch, machine) > copies + machine.sustained->launch;
  }
  std::vector<Value> stored_values(const FusionGroup& group, int index) const {
    std::vector<Value> stored;
    for (const Value& value : group.nodes) {
      const int* home = fusion_.home.find(value.node());
      if (home != nullptr && *home == index) stored.push_back(value);
    }
    return stored;
  }

  // Returns whether a kernel, such as an update, reads the value together with a variable of its
  // shape. Their axes can be merged if both are dense.
  bool joins_state(const Value& value) const {
    return std::ranges::any_of(fusion_.groups, [&](const FusionGroup& group) {
      if (group.kind != FusionGroup::Kind::fused) return false;
      const std::vector<Value> inputs = group.inputs();
      auto is_state = [&](const Value& input) {
        return input->variable != nullptr && input.shape() == value.shape();
      };
      return std::ranges::find(inputs, value.node(), &Value::node) != inputs.end() &&
             std::ranges::any_of(inputs, is_state);
    });
  }

  // Returns the layout of most bytes of the operands that span the whole space, so that a chain
  // keeps the layout of the library kernel at its start; if there is none (pads), that of the
  // largest operand.
  Layout natural_layout(const FusionGroup& group, const Launch& launch) const {
    std::vector<std::pair<Layout, size_t>> votes;
    const Access* largest = nullptr;
    for (const Access& operand : launch.operands) {
      if (operand.value.rank() != group.space.size()) continue;
      if (largest == nullptr || operand.value.elements() > largest->value.elements())
        largest = &operand;
      if (operand.value.shape() != group.space) continue;
      Layout layout{physical_order(group.space, operand.at.strides)};
      auto strides_match = [&] {
        return same_strides(group.space, operand.at.strides,
                            strides_of(operand.value.type(), layout));
      };
      if (!strides_match()) {
        layout.padded = true;
        if (!strides_match()) continue;
      }
      auto found = std::ranges::find(votes, layout, &std::pair<Layout, size_t>::first);
      if (found == votes.end()) found = votes.insert(found, {layout, 0});
      found->second += operand.value.type().bytes();
    }
    if (!votes.empty())
      return std::ranges::max_element(votes, {}, &std::pair<Layout, size_t>::second)->first;
    return largest == nullptr ? Layout() : Layout{order_of_part(*largest)};
  }
  // Returns the physical order of axes. An axis of extent 1 or stride 0 has no place of its own and
  // follows its neighbor.
  static Dims order_of_part(const Access& operand) {
    const Shape& shape = operand.value.shape();
    auto silent = [&](int64_t axis) {
      const int i = static_cast<int>(axis);
      return shape[i] == 1 || operand.at.strides[i] == 0;
    };
    Dims order;
    auto follow = [&](int64_t axis) {
      for (; axis < shape.size() && silent(axis); ++axis) order.push_back(axis);
    };
    follow(0);
    for (int64_t axis : physical_order(shape, operand.at.strides)) {
      if (silent(axis)) continue;
      order.push_back(axis);
      follow(axis + 1);
    }
    return order;
  }

  // Emits a constant in memory as one element, read with stride 0.
  void emit_constant(const Value& value) {
    Value element = make_leaf(op("scalar"), {value.dtype(), {}}, value->attrs);
    Launch launch;
    launch.kernel = "fill";
    launch.body = {element};
    launch.results = {{element, new_slot(element, {})}};
    placed_[value.node()] = {launch.results[0].at.slot, 0, Dims::filled(value.rank(), 0)};
    finish(launch);
  }

  void emit_fused(const FusionGroup& group, int index) {
    if (group.nodes.size() == 1 && group.nodes[0]->op->leaf == LeafKind::scalar)
      return emit_constant(group.nodes[0]);
    Launch launch;
    launch.body = group.nodes;
    launch.unfused = group.unfused;
    for (const Value& input : group.inputs())
      launch.operands.push_back({input, placed_.at(input.node())});
    Layout layout = natural_layout(group, launch);
    for (const Value& value : stored_values(group, index)) {
      bool root = uses_.is_root(value.node());
      Placement to = new_slot(value, root ? Layout() : layout);
      placed_[value.node()] = to;
      launch.results.push_back({value, to});
    }
    launch.kernel = kernel_name(group);
    note_in_place(launch);
    finish(launch);
  }

  static std::string kernel_name(const FusionGroup& group) {
    std::string name;
    size_t named = 0;
    for (const Value& value : group.nodes) {
      if (value->op->kind == OpKind::leaf || is_broadcast(*value.node())) continue;
      if (named < 4) name += (name.empty() ? "" : ".") + std::string(value->op->name);
      ++named;
    }
    if (name.empty()) name = "fill";
    return named > 4 ? name + "+" + std::to_string(named - 4) : name;
  }

  // Notes in-place pairs: a kernel without reductions reads each element of an operand before it
  // writes the same one, unless it gathers from the operand.
  void note_in_place(Launch& launch) {
    for (const Value& value : launch.body)
      if (value->op->kind == OpKind::reduce) return;
    for (size_t r = 0; r < launch.results.size(); ++r)
      for (size_t o = 0; o < launch.operands.size(); ++o) {
        const Access &result = launch.results[r], &operand = launch.operands[o];
        if (!has_layout_of(result, operand) || gathers(launch, operand.value.node())) continue;
        launch.in_place.emplace_back(static_cast<int>(r), static_cast<int>(o));
        take_room_of(operand, result);
      }
  }
  // Grows the result's slot to the operand's size: only slots of equal size can share memory.
  void take_room_of(const Access& operand, const Access& result) {
    if (uses_.is_root(result.value.node())) return;
    const Slot& from = plan_.slots[static_cast<size_t>(operand.at.slot)];
    Slot& to = plan_.slots[static_cast<size_t>(result.at.slot)];
    if (from.type == to.type) to.bytes = std::max(to.bytes, from.bytes);
  }
  static bool has_layout_of(const Access& result, const Access& operand) {
    return operand.value.type() == result.value.type() && operand.at.offset == 0 &&
           same_strides(result.value.shape(), operand.at.strides, result.at.strides);
  }
  void finish(Launch& launch) {
    count_work(launch, plan_.slots);
    for (const Value& value : launch.body)
      if (!value->module().empty()) launch.module = value->module();
    if (launch.kind == Launch::Kind::fused) {
      launch.workspace = options_.library->compiler().workspace(launch);
      launch.reread = options_.library->compiler().reread(launch);
    }
    plan_.launches.push_back(std::move(launch));
  }

  const Graph& graph_;
  const PassOptions& options_;
  Uses uses_;
  Fusion fusion_;
  Plan plan_;
  NodeMap<Placement> placed_;
  NodeMap<bool> follows_;                // see follows_gradients
  std::unordered_map<int, Move> moves_;  // by slot
  NodeMap<std::map<std::vector<int64_t>, Placement>> copies_;
};
}  // namespace

// Fault "bufferize-forgets-copies": operands are assumed to have the layout that a kernel needs.
Plan bufferize(const Graph& graph, const PassOptions& options) {
  return Bufferizer(graph, options).run();
}

}  // namespace weft
