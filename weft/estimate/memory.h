// Estimates the memory of a step of training on one device of a layout, by part.
//
// Sources: what data parallel ranks divide, Rajbhandari et al. 2020 (ZeRO); activations of a layer
// and of the stages of a pipeline, Korthikanti et al. 2022.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "weft/estimate/costs.h"
#include "weft/estimate/job.h"

namespace weft::estimate {

enum class MemoryPart : uint8_t {
  weights,
  master,     // copies of weights that updates read and write
  moments,    // of the optimizer
  gradients,  // those that are there at the peak
  gathered,   // weights of other devices, and gradients on their way to them
  activations,
  logits,
  working,   // values of the layer that is computed
  reserved,  // what the allocator holds beyond that
};
inline constexpr int memory_part_count = 9;
std::string_view name(MemoryPart part);

// StepMemory has the bytes at the peak of a step, on the device that needs most.
struct StepMemory {
  double bytes = 0;
  std::array<double, memory_part_count> parts = {};  // they sum to `bytes`

  double part(MemoryPart which) const { return parts[static_cast<size_t>(which)]; }
};

// Throws Error (usage) as training_step() does.
StepMemory training_memory(const TrainingJob& job, const Layout& layout, const Costs& costs);

}  // namespace weft::estimate
