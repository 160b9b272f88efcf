#include "weft/passes/memory/liveness.h"

#include <algorithm>
#include <numeric>

#include "weft/base/memory/alignment.h"
#include "weft/passes/graph/index.h"

namespace weft {
namespace {
bool in_arena(const Plan& plan, int slot) {
  return slot >= 0 && plan.slots[index(slot)].space == Space::arena;
}

void add_once(std::vector<int>& list, int slot) {
  if (std::find(list.begin(), list.end(), slot) == list.end()) list.push_back(slot);
}

// Returns whether the launch uses the slots of operand and result only through this pair.
bool is_only_use(const Launch& launch, const Access& result, const Access& operand) {
  auto uses = [](const std::vector<Access>& all, int slot) {
    return std::count_if(all.begin(), all.end(),
                         [&](const Access& a) { return a.at.slot == slot; });
  };
  return uses(launch.operands, operand.at.slot) == 1 && uses(launch.results, result.at.slot) == 1 &&
         uses(launch.results, operand.at.slot) == 0;
}

LaunchUse use_of(const Plan& plan, const Launch& launch) {
  LaunchUse use;
  auto bytes_of = [&](int slot) { return plan.slots[index(slot)].bytes; };
  for (const std::vector<Access>* accesses : {&launch.operands, &launch.results})
    for (const Access& access : *accesses)
      if (in_arena(plan, access.at.slot)) add_once(use.slots, access.at.slot);
  for (auto [r, o] : launch.in_place) {
    const Access& result = launch.results[index(r)];
    const Access& operand = launch.operands[index(o)];
    int to = result.at.slot, from = operand.at.slot;
    if (!in_arena(plan, to) || !in_arena(plan, from)) continue;
    if (bytes_of(to) == bytes_of(from) && same_elements(result, operand) &&
        is_only_use(launch, result, operand))
      use.take_overs.push_back({to, from});
  }
  return use;
}
}  // namespace

size_t arena_size(size_t bytes) { return aligned(bytes); }
size_t scratch_bytes(const Launch& launch) {
  return launch.parts > 1 ? 0 : arena_size(launch.workspace);
}

std::vector<int> present_order(const Plan& plan) {
  std::vector<int> order(plan.launches.size());
  std::iota(order.begin(), order.end(), 0);
  return order;
}

ArenaUse::ArenaUse(const Plan& plan) {
  extend(plan);
  for (const Access& input : plan.inputs)
    if (in_arena(plan, input.at.slot)) from_start[index(input.at.slot)] = true;
  for (const Access& output : plan.outputs)
    if (in_arena(plan, output.at.slot)) to_end[index(output.at.slot)] = true;
  for (const Assign& assign : plan.assigns)
    if (in_arena(plan, assign.value.at.slot)) to_end[index(assign.value.at.slot)] = true;
}

void ArenaUse::extend(const Plan& plan) {
  for (size_t i = bytes.size(); i < plan.slots.size(); ++i) {
    const Slot& slot = plan.slots[i];
    bytes.push_back(slot.space == Space::arena ? arena_size(slot.bytes) : 0);
  }
  from_start.resize(bytes.size());
  to_end.resize(bytes.size());
  for (size_t i = launches.size(); i < plan.launches.size(); ++i)
    launches.push_back(use_of(plan, plan.launches[i]));
}

Liveness::Liveness(const Plan& plan, const ArenaUse& use, std::span<const int> order)
    : first(use.bytes.size(), never), last(use.bytes.size(), never) {
  int end = static_cast<int>(order.size());
  set_lifetimes(use, order);
  size_t live = 0;
  auto begin_at = [&](int slot, int at) {
    live += first[index(slot)] == at ? use.bytes[index(slot)] : 0;
  };
  auto end_at = [&](int slot, int at) {
    live -= last[index(slot)] == at ? use.bytes[index(slot)] : 0;
  };
  int slots = static_cast<int>(use.bytes.size());
  for (int slot = 0; slot < slots; ++slot) begin_at(slot, -1);
  peak = live;
  for (int slot = 0; slot < slots; ++slot) end_at(slot, -1);
  for (int at = 0; at < end; ++at) {
    int launch = order[index(at)];
    for (int slot : use.launches[index(launch)].slots) begin_at(slot, at);
    size_t now = live - grant(use, launch, at) + scratch_bytes(plan.launches[index(launch)]);
    if (now > peak)
      peak = now, peak_at = at, peaks = 1;
    else if (now == peak)
      ++peaks;
    total += static_cast<double>(now);
    for (int slot : use.launches[index(launch)].slots) end_at(slot, at);
  }
}

void Liveness::set_lifetimes(const ArenaUse& use, std::span<const int> order) {
  int slots = static_cast<int>(use.bytes.size()), end = static_cast<int>(order.size());
  auto touch = [&](int slot, int at) {
    if (first[index(slot)] == never) first[index(slot)] = at;
    last[index(slot)] = at;
  };
  for (int slot = 0; slot < slots; ++slot)
    if (use.from_start[index(slot)]) touch(slot, -1);
  for (int at = 0; at < end; ++at)
    for (int slot : use.launches[index(order[index(at)])].slots) touch(slot, at);
  for (int slot = 0; slot < slots; ++slot)
    if (use.to_end[index(slot)]) touch(slot, end);
}

size_t Liveness::grant(const ArenaUse& use, int launch, int at) {
  size_t begin = granted.size(), bytes = 0;
  for (auto [result, operand] : use.launches[index(launch)].take_overs) {
    bool dies =
        last[index(operand)] == at && first[index(operand)] < at && first[index(result)] == at;
    bool free = std::none_of(
        granted.begin() + static_cast<std::ptrdiff_t>(begin), granted.end(),
        [&](const Granted& g) { return g.result_slot == result || g.operand_slot == operand; });
    if (!dies || !free) continue;
    granted.push_back({launch, result, operand});
    bytes += use.bytes[index(result)];
  }
  return bytes;
}

}  // namespace weft
