#include "weft/runtime/poison.h"

#include <cstring>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#endif

namespace weft {
namespace {
constexpr int nan_byte = 0xFF;  // NaN in every float type, -1 in integers
}  // namespace

Poison::Poison(const Plan& plan)
    : born_(plan.launches.size()), dead_(plan.launches.size()), all_{0, plan.arena_bytes} {
  int end = static_cast<int>(plan.launches.size());
  for (const Slot& slot : plan.slots) {
    if (slot.space != Space::arena) continue;
    Range range{slot.offset, slot.bytes};
    if (slot.first < 0)
      inputs_.push_back(range);
    else if (slot.first < end)
      born_[static_cast<size_t>(slot.first)].push_back(range);
    if (slot.last >= 0 && slot.last < end) dead_[static_cast<size_t>(slot.last)].push_back(range);
  }
}

void Poison::allow([[maybe_unused]] const Range& range) const {
#ifdef __SANITIZE_ADDRESS__
  __asan_unpoison_memory_region(arena_ + range.offset, range.bytes);
#endif
}

void Poison::forbid(const Range& range) const {
  allow(range);  // the range may be poisoned already, and memset writes to it
  std::memset(arena_ + range.offset, nan_byte, range.bytes);
#ifdef __SANITIZE_ADDRESS__
  __asan_poison_memory_region(arena_ + range.offset, range.bytes);
#endif
}

void Poison::begin_run(std::byte* arena) {
  arena_ = arena;
  forbid(all_);
  for (const Range& range : inputs_) allow(range);
}

void Poison::begin_launch(size_t launch) const {
  for (const Range& range : born_[launch]) allow(range);
}

void Poison::end_launch(size_t launch) const {
  for (const Range& range : dead_[launch]) forbid(range);
}

void Poison::end_run() const { allow(all_); }

}  // namespace weft
