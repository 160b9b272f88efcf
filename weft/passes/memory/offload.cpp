// Offloads variables to files. Their old values are fetched into the arena before they are read,
// and the new values are stored back, so that the arena holds the variables in use and memory holds
// no others.
#include <algorithm>
#include <optional>

#include "weft/base/memory/storage.h"
#include "weft/passes/graph/index.h"
#include "weft/passes/memory/launches.h"
#include "weft/passes/memory/transfers.h"
#include "weft/passes/passes.h"

namespace weft {
namespace {
Access dense(const Value& value, int slot) {
  return {value, {slot, 0, row_major_strides(value.shape())}};
}

class Offloading {
 public:
  Offloading(Plan plan, const PassOptions& options) : plan_(std::move(plan)), options_(options) {}

  Plan run() {
    const int slots = static_cast<int>(plan_.slots.size());
    for (int slot = 0; slot < slots; ++slot)
      if (belongs_in_file(plan_.slots[index(slot)])) move(slot);
    for (Assign& assign : plan_.assigns)
      if (assign.copy && plan_.slots[index(assign.state_slot)].space == Space::file)
        store_at_end(assign);
    insert(plan_, std::move(made_));
    return std::move(plan_);
  }

 private:
  // Returns whether the variable lives in a file, as requested or because another step moved it.
  bool belongs_in_file(const Slot& slot) const {
    return slot.space == Space::state && (slot.value->variable->storage->file() ||
                                          options_.step.offload.covers(slot.category, slot.bytes));
  }
  int end() const { return static_cast<int>(plan_.launches.size()); }

  // Moves a variable to its file. Readers before the launch that writes it read `old`; that launch
  // and later readers use `fresh`, which takes over the memory of `old` where the launch may work
  // in place.
  void move(int slot) {
    plan_.slots[index(slot)].space = Space::file;
    const Value leaf = plan_.slots[index(slot)].value;
    std::optional<int> old, fresh;
    int first = end(), writer = end();
    auto redirect = [&](Access& access, std::optional<int>& to) {
      if (access.at.slot != slot) return false;
      if (!to) to = arena_copy(slot);
      access.at.slot = *to;
      return true;
    };
    for (int at = 0; at < end(); ++at) {
      Launch& launch = plan_.launches[index(at)];
      for (Access& operand : launch.operands)
        if (redirect(operand, writer < at ? fresh : old)) first = std::min(first, at);
      for (Access& result : launch.results)
        if (redirect(result, fresh)) writer = at;
    }
    auto& last = fresh ? fresh : old;
    for (Access& output : plan_.outputs) redirect(output, last);
    Access written = dense(leaf, slot);
    for (Assign& assign : plan_.assigns)
      if (assign.copy || assign.state_slot != slot)
        redirect(assign.value, last);
      else
        written.value = assign.value.value;
    if (old) made_.emplace_back(first, make_transfer(plan_, dense(leaf, slot), dense(leaf, *old)));
    if (fresh && !options_.has_fault("offload-forgets-stores"))
      made_.emplace_back(writer + 1, make_transfer(plan_, dense(written.value, *fresh), written));
  }

  // Stores a new value that is in another slot to the file at the end of the step.
  void store_at_end(Assign& assign) {
    const Access to = dense(assign.value.value, assign.state_slot);
    made_.emplace_back(end(), make_transfer(plan_, assign.value, to));
    assign.value = to;
    assign.copy = false;
  }

  int arena_copy(int slot) {
    Slot copy = plan_.slots[index(slot)];
    copy.space = Space::arena;
    plan_.slots.push_back(std::move(copy));
    return static_cast<int>(plan_.slots.size()) - 1;
  }

  Plan plan_;
  const PassOptions& options_;
  std::vector<std::pair<int, Launch>> made_;  // the index of the launch that each goes before
};
}  // namespace

// Fault "offload-forgets-stores": new values stay in the arena.
Plan offload_state(Plan plan, const PassOptions& options) {
  return Offloading(std::move(plan), options).run();
}

}  // namespace weft
