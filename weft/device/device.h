// Declares the interface of backends: a KernelLibrary, whose roles are interfaces of their own.
// Backends include this header, never each other.
#pragma once

#include <string>

#include "weft/base/memory/device_memory.h"
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

  // Returns the memory of operands and results. Throws Error(device) if there is no device.
  virtual DeviceMemory& memory() const { return host_memory(); }
  // Returns whether memory() is the host's; needs no device, so that plans can be made anywhere.
  virtual bool on_host() const { return true; }
  // Returns whether the inputs of a training step are double-buffered: copied to memory of their
  // own while the step before runs.
  virtual bool stages_inputs() const { return false; }
  // Returns whether the library plans and computes nothing: its kernels touch no memory.
  virtual bool only_plans() const { return false; }
};

// Returns a library without kernels and without a compiler, for graphs that only passes see.
const KernelLibrary& no_library();

}  // namespace weft
