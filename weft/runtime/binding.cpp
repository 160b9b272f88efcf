#include "weft/runtime/binding.h"

#include <utility>

#include "weft/base/error.h"
#include "weft/base/memory/buffer.h"

namespace weft {

void Binding::bind() {
  residency_.place();
  for (auto& [launch, kernel] : residency_.copies()) kernels_[launch] = std::move(kernel);
  const auto address = [this](const Access& access) -> void* {
    return residency_.address(access.at.slot);
  };
  note_uses();
  launches_.resize(plan_.launches.size());
  for (size_t i = 0; i < launches_.size(); ++i) {
    const Launch& launch = plan_.launches[i];
    Addresses& at = launches_[i];
    at.operands.clear();
    at.results.clear();
    for (const Access& access : launch.operands) at.operands.push_back(address(access));
    for (const Access& access : launch.results) at.results.push_back(address(access));
    for (void* result : at.results)
      WEFT_ASSERT(reinterpret_cast<uintptr_t>(result) % buffer_alignment == 0,
                  "a result of {} is not aligned", launch.kernel);
    at.workspace = launch.workspace_slot >= 0 ? residency_.address(launch.workspace_slot) : nullptr;
    kernels_[i]->bind(at.operands.data(), at.results.data(), at.workspace);
  }
}

void Binding::note_uses() {
  uses_.assign(plan_.slots.size(), {});
  const auto note = [this](size_t launch, bool is_result, const std::vector<Access>& accesses) {
    for (size_t i = 0; i < accesses.size(); ++i) {
      const auto slot = static_cast<size_t>(accesses[i].at.slot);
      if (plan_.slots[slot].space == Space::argument) uses_[slot].push_back({launch, is_result, i});
    }
  };
  for (size_t i = 0; i < plan_.launches.size(); ++i) {
    note(i, false, plan_.launches[i].operands);
    note(i, true, plan_.launches[i].results);
  }
}

// The kernels of the host take their addresses at each launch, so nothing is bound anew.
void Binding::lend(int slot, std::byte* at) {
  residency_.lend_argument(slot, at);
  for (const Use& use : uses_[static_cast<size_t>(slot)]) {
    Addresses& launch = launches_[use.launch];
    (use.is_result ? launch.results : launch.operands)[use.at] = at;
  }
}

void Binding::run(size_t launch) const {
  const Addresses& at = launches_[launch];
  kernels_[launch]->run(at.operands.data(), at.results.data(), at.workspace);
}

}  // namespace weft
