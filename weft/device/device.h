// What a backend implements: a KernelLibrary, whose roles are interfaces of their own. Interfaces
// only; backends include this, never each other.
#pragma once

#include <string>

#include "weft/base/device_memory.h"
#include "weft/device/choice.h"
#include "weft/device/compiler.h"
#include "weft/device/meters.h"

namespace weft {

class KernelLibrary {
 public:
  virtual ~KernelLibrary() = default;
  virtual std::string name() const = 0;

  virtual const KernelChooser& kernels() const = 0;
  virtual const KernelCompiler& compiler() const = 0;
  virtual const Meters& meters() const { return host_meters(); }

  // Where kernels find operands and results. Throws Error(device) where there is no device.
  virtual DeviceMemory& memory() const { return host_memory(); }
  // Whether that is the host's memory; known without a device, as plans are.
  virtual bool on_host() const { return true; }
  // Whether the inputs of a step arrive in memory of their own, while the step before it runs.
  virtual bool stages_inputs() const { return false; }
};

// Has no kernel for any node and compiles nothing: for graphs that only passes see.
const KernelLibrary& no_library();

}  // namespace weft
