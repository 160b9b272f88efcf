// The OpenCL backend.
#pragma once

#include <memory>

#include "weft/device/device.h"

namespace weft {

std::unique_ptr<KernelLibrary> opencl_library();

}  // namespace weft
