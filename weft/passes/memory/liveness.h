// Declares the liveness of slots and the in-place reuse of their memory, which the order and memory
// passes share.
#pragma once

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "weft/ir/plan.h"

namespace weft {

// Returns the bytes of a slot in the arena, rounded up to buffer_alignment.
size_t arena_size(size_t bytes);
// Returns the bytes of a launch's scratch in the arena, without the table of a joined launch.
size_t scratch_bytes(const Launch& launch);

// Returns the launches of a plan in their order: 0, 1, ...
std::vector<int> present_order(const Plan& plan);

// A LaunchUse says which slots of the arena a launch touches. Indices are those of Plan::slots.
struct LaunchUse {
  std::vector<int> slots;  // slots in the arena that are read or written, without duplicates
  struct TakeOver {
    int result_slot, operand_slot;
  };
  std::vector<TakeOver> take_overs;  // possible if the operand dies here
};

// An ArenaUse is what a plan does to the arena whatever the order of its launches.
struct ArenaUse {
  std::vector<size_t> bytes;     // bytes of each slot, rounded; 0 outside the arena
  std::vector<bool> from_start;  // inputs
  std::vector<bool> to_end;      // outputs, and values that are copied to variables at the end
  std::vector<LaunchUse> launches;
  explicit ArenaUse(const Plan& plan);
  void extend(const Plan& plan);  // adds slots and launches that the plan got since
};

// A Liveness is computed for launches that run in `order`, a permutation of their indices.
struct Liveness {
  struct Granted {
    int launch, result_slot, operand_slot;
  };
  size_t peak = 0;   // most bytes live at once, scratch included
  int peak_at = -1;  // position of the first launch at the peak
  int peaks = 1;     // number of launches at the peak
  double total = 0;  // live bytes summed over the launches: the tie-break among equal peaks
  // `first` and `last` are the live range of each slot, as positions in `order`: -1 before the
  // first launch, order.size() after the last; `never` outside the arena.
  std::vector<int> first, last;
  static constexpr int never = -2;
  std::vector<Granted> granted;
  Liveness(const Plan& plan, const ArenaUse& use, std::span<const int> order);

 private:
  void set_lifetimes(const ArenaUse& use, std::span<const int> order);
  size_t grant(const ArenaUse& use, int launch, int at);  // bytes that the launch reuses
};

}  // namespace weft
