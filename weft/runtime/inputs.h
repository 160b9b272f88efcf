// Inputs copies the inputs of a run to the plan's slots.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "weft/base/memory/buffer.h"
#include "weft/base/memory/device_memory.h"
#include "weft/ir/plan.h"
#include "weft/runtime/residency.h"

namespace weft {

// Returns the bytes of the inputs, each aligned, on a device that stages them
// (KernelLibrary::stages_inputs).
size_t staged_bytes(const Plan& plan);

class Inputs {
 public:
  // Allocates buffers where inputs are staged. The arguments outlive it.
  Inputs(const Plan& plan, const Residency& residency, DeviceMemory& memory, bool stages);

  // Copies evaluated values of the plan's types. Staged ones are transferred while the previous
  // step still runs.
  void take(std::span<const Value> inputs);

 private:
  void write(std::span<const Value> inputs);
  void stage(std::span<const Value> inputs);

  const Plan& plan_;
  const Residency& residency_;
  DeviceMemory& memory_;
  // Staging buffers on host and device, and the copy between them; null: inputs are not staged.
  std::shared_ptr<Buffer> here_, there_;
  std::unique_ptr<CopyStream> copy_;
};

}  // namespace weft
