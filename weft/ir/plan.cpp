// Prints and verifies plans.
#include "weft/ir/plan.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include <fmt/format.h>

#include "weft/ir/op_def.h"

namespace weft {
namespace {
std::string_view name(Space space) {
  constexpr std::string_view names[] = {"arena", "state", "constant", "file", "argument"};
  return names[static_cast<int>(space)];
}

std::string to_text(const Access& access) {
  std::string text = fmt::format("s{}", access.at.slot);
  if (access.at.offset != 0) text += fmt::format("+{}", access.at.offset);
  text += ":" + to_string(access.value.type());
  if (access.at.strides != row_major_strides(access.value.shape()))
    text += "/" + to_string(access.at.strides);
  return text;
}

std::string list(const std::vector<Access>& accesses) {
  std::string text;
  for (const Access& access : accesses) text += (text.empty() ? "" : ", ") + to_text(access);
  return text;
}

std::string describe(const Plan& plan, const Slot& slot) {
  if (slot.variable >= 0) return plan.variable(slot).name;
  return slot.value.defined() ? std::string(slot.value->op->name) : "scratch";
}

// Contents tracks which values each slot holds while the plan runs. Values are equal if their ids
// are.
class Contents {
 public:
  explicit Contents(const Plan& plan) : plan_(plan), held_(plan.slots.size()) {
    for (size_t i = 0; i < plan.slots.size(); ++i)
      if (holds_from_start(plan.slots[i])) hold(held_[i], *plan.slots[i].value.node());
    for (const Access& input : plan.inputs) {
      held_[index(input)].clear();
      hold(held_[index(input)], *input.value.node());
    }
  }

  bool holds(const Access& access) const {
    std::map<const Node*, bool> known;  // a part may be there several times
    return holds(held_[index(access)], *access.value.node(), known);
  }

  void write(const Access& access) {
    auto& slot = held_[index(access)];
    bool whole = access.value.type().bytes() == plan_.slots[index(access)].type.bytes();
    if (whole) slot.clear();
    const Node* node = access.value.node();
    hold(slot, *node);
    for (; node->op->scalar == ScalarOp::identity; node = node->inputs[0].node())
      hold(slot, *node->inputs[0].node());  // a copy has the elements of its operand
  }

 private:
  using Held = std::map<uint64_t, const Node*>;  // by id

  static void hold(Held& held, const Node& node) { held.emplace(node.id, &node); }
  static bool holds_from_start(const Slot& slot) {
    return slot.space == Space::state || slot.space == Space::constant ||
           (slot.space == Space::file && slot.variable >= 0);
  }
  size_t index(const Access& access) const {
    WEFT_ASSERT(access.at.slot >= 0 && access.at.slot < static_cast<int>(plan_.slots.size()),
                "{} has no slot", access.value->op->name);
    return static_cast<size_t>(access.at.slot);
  }
  // A slot holds a view if it holds its base, a concatenation if it holds all of its parts, and a
  // constant if it holds a constant of the same number.
  static bool holds(const Held& held, const Node& node, std::map<const Node*, bool>& known) {
    if (const auto found = known.find(&node); found != known.end()) return found->second;
    return known[&node] = holds_anew(held, node, known);
  }
  static bool holds_anew(const Held& held, const Node& node, std::map<const Node*, bool>& known) {
    if (held.contains(node.id) || node.type.elements() == 0) return true;
    if (node.op->leaf == LeafKind::scalar)
      return std::ranges::any_of(held, [&](const auto& entry) {
        const Node& other = *entry.second;
        return other.op->leaf == LeafKind::scalar && other.type.dtype == node.type.dtype &&
               other.attrs.number("value") == node.attrs.number("value");
      });
    return node.op->kind == OpKind::movement && !node.inputs.empty() &&
           std::all_of(node.inputs.begin(), node.inputs.end(),
                       [&](const Value& input) { return holds(held, *input.node(), known); });
  }

  const Plan& plan_;
  std::vector<Held> held_;
};

// A Box describes the elements of an access in memory by the strides and extents of its axes, from
// the widest stride to the narrowest.
struct Box {
  std::vector<std::pair<int64_t, int64_t>> axes;  // stride, extent

  explicit Box(const Access& access) {
    for (int i = 0; i < access.value.rank(); ++i)
      if (access.value.shape()[i] != 1 && access.at.strides[i] != 0)
        axes.emplace_back(access.at.strides[i], access.value.shape()[i]);
    std::ranges::sort(axes, std::greater<>());
    for (size_t i = axes.size(); i-- > 1;) {  // axes of equal stride merge
      if (axes[i].first != axes[i - 1].first) continue;
      axes[i - 1].second += axes[i].second - 1;
      axes.erase(axes.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
  // Adds an axis of extent 1 for each stride that only `other` has.
  Box with_axes_of(const Box& other) const {
    Box all = *this;
    for (auto [stride, extent] : other.axes)
      if (std::ranges::find(axes, stride, &std::pair<int64_t, int64_t>::first) == axes.end())
        all.axes.emplace_back(stride, 1);
    std::ranges::sort(all.axes, std::greater<>());
    return all;
  }
  // Returns the distance from the first element to the last over axes [from, ..).
  int64_t reach(size_t from) const {
    int64_t sum = 0;
    for (size_t i = from; i < axes.size(); ++i) sum += axes[i].first * (axes[i].second - 1);
    return sum;
  }
};

// Returns whether axes [axis, ..) of two boxes share an element; b is `apart` elements behind a.
bool meet(const Box& a, const Box& b, int64_t apart, size_t axis) {
  if (apart > a.reach(axis) || -apart > b.reach(axis)) return false;
  if (axis == a.axes.size()) return true;
  const auto [stride, extent] = a.axes[axis];
  // Shifts of b against a, in strides, for which the inner axes could still overlap.
  const int64_t inner = std::max(a.reach(axis + 1), b.reach(axis + 1));
  const int64_t first = std::max(1 - extent, (-inner - apart) / stride - 1);
  const int64_t last = std::min(b.axes[axis].second - 1, (inner - apart) / stride + 1);
  for (int64_t launch = first; launch <= last; ++launch)
    if (meet(a, b, apart + launch * stride, axis + 1)) return true;
  return false;
}

// Checks that results share elements with operands only as in_place says, element by element.
void check_sharing(const Launch& launch, int at) {
  for (size_t r = 0; r < launch.results.size(); ++r)
    for (size_t o = 0; o < launch.operands.size(); ++o) {
      const Placement &to = launch.results[r].at, &from = launch.operands[o].at;
      if (to.slot != from.slot || !share_elements(launch.results[r], launch.operands[o])) continue;
      std::pair<int, int> pair{static_cast<int>(r), static_cast<int>(o)};
      bool granted =
          std::find(launch.in_place.begin(), launch.in_place.end(), pair) != launch.in_place.end();
      WEFT_ASSERT(granted && same_elements(launch.results[r], launch.operands[o]),
                  "launch {} ({}) writes slot {} while it reads it", at, launch.kernel, to.slot);
    }
}

void check_values(const Plan& plan) {
  Contents memory(plan);
  auto check_read = [&](const Access& access, int launch, std::string_view what) {
    WEFT_ASSERT(memory.holds(access), "launch {}: slot {} does not hold {} {}", launch,
                access.at.slot, access.value->op->name, what);
  };
  int at = 0;
  for (const Launch& launch : plan.launches) {
    for (const Access& operand : launch.operands)
      check_read(operand, at, "when " + launch.kernel + " reads it");
    check_sharing(launch, at);
    for (const Access& result : launch.results) memory.write(result);
    ++at;
  }
  for (const Assign& assign : plan.assigns) {
    check_read(assign.value, at, "that is assigned");
    WEFT_ASSERT(assign.copy || assign.value.at.slot == assign.state_slot,
                "the new value of slot {} is in slot {} and is not copied", assign.state_slot,
                assign.value.at.slot);
    if (assign.copy && plan.arena_bytes > 0)  // in the order that the alias pass chose
      memory.write({assign.value.value, {assign.state_slot, 0, {}}});
  }
  for (const Access& output : plan.outputs) check_read(output, at, "that is an output");
}

// Checks that launches leave the inputs alone that are memory of the caller.
void check_arguments(const Plan& plan) {
  std::set<int> lent;
  for (const Access& input : plan.inputs)
    if (plan.slots[static_cast<size_t>(input.at.slot)].space == Space::argument)
      lent.insert(input.at.slot);
  for (const Launch& launch : plan.launches)
    for (const Access& result : launch.results)
      WEFT_ASSERT(!lent.contains(result.at.slot),
                  "{} writes slot {}, which is an input of the caller", launch.kernel,
                  result.at.slot);
}

void check_lifetimes(const Plan& plan) {
  auto check = [&](const Access& access, int at) {
    const Slot& slot = plan.slots[static_cast<size_t>(access.at.slot)];
    WEFT_ASSERT(slot.space != Space::arena || (slot.first <= at && at <= slot.last),
                "slot {} lives in launches {} to {} and is used at {}", access.at.slot, slot.first,
                slot.last, at);
  };
  int at = 0;
  for (const Launch& launch : plan.launches) {
    for (const Access& operand : launch.operands) check(operand, at);
    for (const Access& result : launch.results) check(result, at);
    if (launch.workspace_slot >= 0) check({{}, {launch.workspace_slot, 0, {}}}, at);
    ++at;
  }
  for (const Access& input : plan.inputs) check(input, -1);
  for (const Access& output : plan.outputs) check(output, at);
  for (const Assign& assign : plan.assigns) check(assign.value, at);
}

// Sweeps over the launches: a new slot must fit between live slots, which are sorted by offset.
void check_overlaps(const Plan& plan) {
  int launches = static_cast<int>(plan.launches.size());
  std::vector<std::vector<const Slot*>> starts(plan.launches.size() + 2),
      ends(plan.launches.size() + 2);
  for (const Slot& slot : plan.slots) {
    if (slot.space != Space::arena || slot.bytes == 0) continue;
    WEFT_ASSERT(-1 <= slot.first && slot.first <= slot.last && slot.last <= launches,
                "{} lives from {} to {}", describe(plan, slot), slot.first, slot.last);
    WEFT_ASSERT(slot.offset + slot.bytes <= plan.arena_bytes, "{} is outside the arena",
                describe(plan, slot));
    WEFT_ASSERT(slot.bytes >= slot.type.bytes(), "{} is cut short", describe(plan, slot));
    starts[static_cast<size_t>(slot.first) + 1].push_back(&slot);
    ends[static_cast<size_t>(slot.last) + 1].push_back(&slot);
  }
  std::map<size_t, const Slot*> live;
  for (size_t time = 0; time < starts.size(); ++time) {
    for (const Slot* slot : starts[time]) {
      auto next = live.lower_bound(slot->offset);
      bool free = next == live.end() || slot->offset + slot->bytes <= next->first;
      if (next != live.begin()) {
        const Slot* before = std::prev(next)->second;
        free = free && before->offset + before->bytes <= slot->offset;
      }
      WEFT_ASSERT(free, "{} overlaps a live slot at launch {}", describe(plan, *slot),
                  static_cast<int>(time) - 1);
      live.emplace(slot->offset, slot);
    }
    for (const Slot* slot : ends[time]) live.erase(slot->offset);
  }
}

// Returns extents and strides with contiguous axes merged, to compare placements across shapes.
std::vector<std::pair<int64_t, int64_t>> merged_axes(const Access& access) {
  std::vector<std::pair<int64_t, int64_t>> axes;  // extent, stride
  const Shape& shape = access.value.shape();
  for (int i = 0; i < shape.size(); ++i) {
    if (shape[i] == 1) continue;
    int64_t stride = access.at.strides[i];
    if (!axes.empty() && axes.back().second == stride * shape[i]) {
      axes.back() = {axes.back().first * shape[i], stride};
    } else {
      axes.emplace_back(shape[i], stride);
    }
  }
  return axes;
}
}  // namespace

bool share_elements(const Access& x, const Access& y) {
  if (x.value.type().elements() == 0 || y.value.type().elements() == 0) return false;
  const Box a(x), b(y);
  for (const Box* box : {&a, &b})
    if (!box->axes.empty() && box->axes.back().first < 0) return true;
  const int64_t apart = y.at.offset - x.at.offset;
  return meet(a.with_axes_of(b), b.with_axes_of(a), apart, 0);
}

bool same_elements(const Access& a, const Access& b) {
  return a.at.offset == b.at.offset && size_of(a.value.dtype()) == size_of(b.value.dtype()) &&
         merged_axes(a) == merged_axes(b);
}

Launch part_of(const Launch& launch, int part) {
  Launch one{.kind = launch.kind,
             .kernel = launch.kernel,
             .algorithm = launch.algorithm,
             .module = launch.module};
  auto take = [&](const auto& from, auto& to) {
    const auto count = std::ssize(from) / launch.parts;
    to.assign(from.begin() + count * part, from.begin() + count * (part + 1));
    return static_cast<int>(count);
  };
  take(launch.body, one.body);
  const int operands = take(launch.operands, one.operands),
            results = take(launch.results, one.results);
  for (auto [result, operand] : launch.in_place)
    if (result / results == part) one.in_place.emplace_back(result % results, operand % operands);
  return one;
}

double Plan::flops() const {
  double total = 0;
  for (const Launch& launch : launches) total += launch.flops;
  return total;
}

std::string to_text(const Plan& plan) {
  std::string text;
  for (size_t i = 0; i < plan.slots.size(); ++i) {
    const Slot& slot = plan.slots[i];
    text +=
        fmt::format("s{}: {} {} {} bytes", i, name(slot.space), describe(plan, slot), slot.bytes);
    if (slot.space == Space::file && slot.variable < 0) text += fmt::format(" at {}", slot.offset);
    if (slot.space == Space::arena)
      text += fmt::format(" at {}, launches {} to {}", slot.offset, slot.first, slot.last);
    text += '\n';
  }
  if (!plan.inputs.empty()) text += "inputs " + list(plan.inputs) + "\n";
  for (size_t i = 0; i < plan.launches.size(); ++i) {
    const Launch& launch = plan.launches[i];
    text += fmt::format("{}: {}({}) -> {}", i, launch.kernel, list(launch.operands),
                        list(launch.results));
    for (auto [result, operand] : launch.in_place) text += fmt::format(" {}<-{}", result, operand);
    if (launch.workspace > 0)
      text += fmt::format(" scratch s{} {}", launch.workspace_slot, launch.workspace);
    if (launch.padded) text += " padded";
    if (launch.rematerialized) text += " recomputed";
    if (!launch.module.empty()) text += "  # " + launch.module;
    text += '\n';
  }
  if (!plan.outputs.empty()) text += "outputs " + list(plan.outputs) + "\n";
  for (const Assign& assign : plan.assigns)
    text += fmt::format("s{} {} {}\n", assign.state_slot, assign.copy ? ":=" : "is",
                        to_text(assign.value));
  return text +
         fmt::format("arena {} bytes, live peak {}\n", plan.arena_bytes, plan.live_peak_bytes);
}

void verify_transfers(const Plan& plan) {
  std::multimap<int, bool> under_way;  // slot in memory -> whether the transfer writes it
  auto in_file = [&](const Access& access) {
    return plan.slots[static_cast<size_t>(access.at.slot)].space == Space::file;
  };
  auto check_untouched = [&](const Access& access, bool writes, const Launch& launch) {
    auto moving = under_way.find(access.at.slot);
    WEFT_ASSERT(moving == under_way.end() || !(writes || moving->second),
                "{} touches slot {} while it is moved", launch.kernel, access.at.slot);
  };
  for (const Launch& launch : plan.launches) {
    if (launch.kind == Launch::Kind::await) {
      for (const Access& operand : launch.operands) {
        auto moving = under_way.find(operand.at.slot);
        WEFT_ASSERT(moving != under_way.end(), "slot {} is not being moved", operand.at.slot);
        under_way.erase(moving);
      }
      continue;
    }
    for (const Access& operand : launch.operands) check_untouched(operand, false, launch);
    for (const Access& result : launch.results) check_untouched(result, true, launch);
    if (launch.kind == Launch::Kind::collective) {
      const int from = launch.operands[0].at.slot, to = launch.results[0].at.slot;
      under_way.emplace(to, true);
      if (from != to) under_way.emplace(from, false);
    }
    if (launch.kind != Launch::Kind::transfer) continue;
    const bool fetch = in_file(launch.operands[0]);
    WEFT_ASSERT(fetch != in_file(launch.results[0]), "a transfer within one place");
    under_way.emplace((fetch ? launch.results : launch.operands)[0].at.slot, fetch);
  }
  WEFT_ASSERT(under_way.empty(), "{} transfers are not awaited", under_way.size());
}

void verify(const Plan& plan) {
  check_values(plan);
  check_arguments(plan);
  if (plan.arena_bytes == 0) return;  // before the memory pass
  check_lifetimes(plan);
  check_overlaps(plan);
  verify_transfers(plan);
}

}  // namespace weft
