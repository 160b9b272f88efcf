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

void Binding::run(size_t launch) const {
  const Addresses& at = launches_[launch];
  kernels_[launch]->run(at.operands.data(), at.results.data(), at.workspace);
}

}  // namespace weft
