// When each slot of a plan is live, and who takes over whose memory: shared by order and memory.
#pragma once

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "weft/ir/plan.h"

namespace weft {

// Bytes of a slot in the arena: rounded up to buffer_alignment.
size_t arena_size(size_t bytes);
// Of its scratch there; the table of a joined launch lies elsewhere.
size_t scratch_bytes(const Step& step);

// What a step does to the arena. Indices are those of Plan::slots.
struct StepUse {
  std::vector<int> slots;  // in the arena, read or written; each once
  struct TakeOver {
    int result_slot, operand_slot;
  };
  std::vector<TakeOver>
      take_overs;  // allowed by kernel, sizes and placements, if the operand dies here
};

// The arena's view of a plan, which does not depend on the order of the steps.
struct ArenaUse {
  std::vector<size_t> bytes;     // of each slot, rounded; 0 outside the arena
  std::vector<bool> from_start;  // inputs
  std::vector<bool> to_end;      // outputs, and values that are copied to variables at the end
  std::vector<StepUse> steps;
  explicit ArenaUse(const Plan& plan);
  void extend(const Plan& plan);  // by slots and steps that the plan got since
};

// Live bytes when the steps run in `order` (a permutation of their indices).
struct Liveness {
  struct Granted {
    int step, result_slot, operand_slot;
  };
  size_t peak = 0;   // most bytes live at once, scratch included
  int peak_at = -1;  // its first position
  int peaks = 1;     // positions with as much
  double total = 0;  // live bytes summed over the steps: among equal peaks, less is better
  // Per slot, as positions in `order`: -1 before it, order.size() after it; `never` outside the
  // arena.
  std::vector<int> first, last;
  static constexpr int never = -2;
  std::vector<Granted> granted;
  Liveness(const Plan& plan, const ArenaUse& use, std::span<const int> order);

 private:
  void set_lifetimes(const ArenaUse& use, std::span<const int> order);
  size_t grant(const ArenaUse& use, int step, int at);  // bytes that results of this step take over
};

}  // namespace weft
