// The OpenCL backend: every kernel is generated, from the loops of fused steps or from those of
// primitives.
#pragma once

#include <memory>

#include "weft/device/device.h"

namespace weft {

// Throws Error(device) where there is no OpenCL device.
std::unique_ptr<KernelLibrary> opencl_library();

}  // namespace weft
