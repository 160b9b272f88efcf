// Assigns each stored value of the step its offset in the arena.
#include <algorithm>
#include <numeric>
#include <vector>

#include "weft/ir/op_def.h"
#include "weft/passes/graph/index.h"
#include "weft/passes/memory/arena.h"
#include "weft/passes/memory/liveness.h"
#include "weft/passes/passes.h"

namespace weft {
namespace {
class MemoryPlanner {
 public:
  MemoryPlanner(Plan plan, const PassOptions& options)
      : plan_(std::move(plan)), options_(options) {}

  Plan run() {
    add_workspaces();
    if (!options_.skips("reuse")) take_over();
    drop_refused();
    if (options_.lends()) lend_results();
    set_lifetimes();
    drop_unused();
    assign_offsets();
    if (!options_.skips("reuse")) grow_workspaces();
    return std::move(plan_);
  }

 private:
  // Adds scratch slots, which are live in their launch only. The table of a joined launch persists
  // between runs, in memory that no other launch uses.
  void add_workspaces() {
    for (Launch& launch : plan_.launches) {
      if (launch.workspace == 0) continue;
      launch.workspace_slot = static_cast<int>(plan_.slots.size());
      const Type type{DType::u8, {static_cast<int64_t>(launch.workspace)}};
      Slot slot{.type = type, .category = Category::workspace, .bytes = launch.workspace};
      if (launch.parts > 1) {
        slot.space = Space::constant;
        slot.category = Category::constant;
        slot.value = make_leaf(op("data"), type);
      }
      plan_.slots.push_back(std::move(slot));
    }
  }

  // Merges the slots of results with those of the dying operands whose memory they reuse. The
  // merged slot gets the category of the value that it holds at the peak, which the memory table
  // reports.
  void take_over() {
    Liveness liveness(plan_, ArenaUse(plan_), present_order(plan_));
    std::vector<int> into(plan_.slots.size());
    std::iota(into.begin(), into.end(), 0);
    for (auto [launch, result, operand] : liveness.granted) {
      into[index(result)] = into[index(operand)];
      if (launch <= liveness.peak_at)
        plan_.slots[index(into[index(result)])].category = plan_.slots[index(result)].category;
    }
    auto move = [&](Access& access) { access.at.slot = into[index(access.at.slot)]; };
    for_each_access(move);
  }
  void drop_refused() {
    for (Launch& launch : plan_.launches)
      std::erase_if(launch.in_place, [&](auto pair) {
        return launch.results[index(pair.first)].at.slot !=
               launch.operands[index(pair.second)].at.slot;
      });
  }

  // Moves results that have their slot for themselves to the caller's memory, and with them the
  // values whose bytes they take over. Inputs are there already; as they are not in the arena, no
  // result takes over their bytes, and the caller finds them unchanged.
  void lend_results() {
    for (const Access& output : plan_.outputs) {
      Slot& slot = plan_.slots[index(output.at.slot)];
      if (slot.space == Space::arena && output.at.offset == 0 &&
          slot.bytes == output.value.type().bytes())
        slot.space = Space::argument;
    }
  }

  template <class F>
  void for_each_access(F&& visit) {
    for (Launch& launch : plan_.launches) {
      for (Access& operand : launch.operands) visit(operand);
      for (Access& result : launch.results) visit(result);
    }
    for (Access& input : plan_.inputs) visit(input);
    for (Access& output : plan_.outputs) visit(output);
    for (Assign& assign : plan_.assigns) visit(assign.value);
  }

  void set_lifetimes() {
    for (Slot& slot : plan_.slots) slot.first = slot.last = Liveness::never;
    Liveness liveness(plan_, ArenaUse(plan_), present_order(plan_));
    for (size_t i = 0; i < plan_.slots.size(); ++i) {
      plan_.slots[i].first = liveness.first[i];
      plan_.slots[i].last = liveness.last[i];
    }
    for (int at = 0; at < static_cast<int>(plan_.launches.size()); ++at)
      if (int scratch = plan_.launches[index(at)].workspace_slot; scratch >= 0)
        plan_.slots[index(scratch)].first = plan_.slots[index(scratch)].last = at;
    int end = static_cast<int>(plan_.launches.size());
    for (Slot& slot : plan_.slots)
      if (slot.space != Space::arena) slot.first = -1, slot.last = end;
  }

  void drop_unused() {
    std::vector<int> now(plan_.slots.size(), -1);
    std::vector<Slot> used;
    for (size_t i = 0; i < plan_.slots.size(); ++i) {
      if (plan_.slots[i].first == Liveness::never) continue;
      now[i] = static_cast<int>(used.size());
      used.push_back(std::move(plan_.slots[i]));
    }
    plan_.slots = std::move(used);
    for_each_access([&](Access& access) { access.at.slot = now[index(access.at.slot)]; });
    for (Launch& launch : plan_.launches)
      if (launch.workspace_slot >= 0) launch.workspace_slot = now[index(launch.workspace_slot)];
    for (Assign& assign : plan_.assigns) assign.state_slot = now[index(assign.state_slot)];
  }

  void assign_offsets() {
    std::vector<Slot*> slots;
    std::vector<Block> blocks;
    bool overlap = options_.has_fault("memory-overlap"), reuse = !options_.skips("reuse");
    int end = static_cast<int>(plan_.launches.size());
    for (Slot& slot : plan_.slots) {
      if (slot.space != Space::arena) continue;
      slot.bytes = arena_size(slot.bytes);
      slots.push_back(&slot);
      blocks.push_back({slot.bytes, slot.first, slot.last, 0});
    }
    for (Slot& slot : plan_.slots) {
      if (slot.space != Space::file || slot.variable >= 0) continue;
      slot.offset = plan_.file_bytes;
      plan_.file_bytes += arena_size(slot.bytes);
    }
    plan_.live_peak_bytes = live_peak(blocks);
    for (Block& block : blocks) {
      if (!reuse) block.first = -1, block.last = end;
      if (overlap && block.last > block.first) --block.last;
    }
    plan_.arena_bytes = pack(blocks);
    for (size_t i = 0; i < slots.size(); ++i) slots[i]->offset = blocks[i].offset;
  }

  struct Gap {
    size_t offset = 0, bytes = 0;
  };
  // Returns the largest range of the arena that only `scratch` uses during a launch.
  Gap largest_gap(int at, const Slot& scratch) const {
    std::vector<const Slot*> live;
    for (const Slot& slot : plan_.slots)
      if (slot.space == Space::arena && slot.first <= at && at <= slot.last && &slot != &scratch)
        live.push_back(&slot);
    std::ranges::sort(live, {}, &Slot::offset);
    Gap largest;
    size_t end = 0;  // end of the slots so far
    auto note = [&](size_t next) {
      if (next > end && next - end > largest.bytes) largest = {end, next - end};
    };
    for (const Slot* slot : live) {
      note(slot->offset);
      end = std::max(end, slot->offset + slot->bytes);
    }
    note(plan_.arena_bytes);
    return largest;
  }
  // Grows scratch that a kernel can use into memory that is free during its launch; the arena stays
  // as large as it is. A size is the most that the kernel can use, or a half or a quarter of it, so
  // that equal kernels have few sizes.
  void grow_workspaces() {
    for (int at = 0; at < static_cast<int>(plan_.launches.size()); ++at) {
      Launch& launch = plan_.launches[index(at)];
      if (launch.most_workspace <= launch.workspace || launch.workspace_slot < 0) continue;
      Slot& scratch = plan_.slots[index(launch.workspace_slot)];
      const Gap gap = largest_gap(at, scratch);
      for (const size_t part : {1, 2, 4}) {
        const size_t bytes = arena_size(launch.most_workspace / part);
        if (bytes <= launch.workspace || bytes > gap.bytes) continue;
        launch.workspace = scratch.bytes = bytes;
        scratch.offset = gap.offset;
        scratch.type.shape = {static_cast<int64_t>(bytes)};
        break;
      }
    }
  }

  Plan plan_;
  const PassOptions& options_;
};
}  // namespace

// Fault "memory-overlap": every slot is freed one launch too early.
Plan assign_memory(Plan plan, const PassOptions& options) {
  return MemoryPlanner(std::move(plan), options).run();
}

}  // namespace weft
