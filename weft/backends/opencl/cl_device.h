// A device that runs programs in OpenCL C (OpenCL 1.2, Khronos 2012).
#pragma once

#include <memory>

#include "weft/backends/gpu/device.h"

namespace weft::opencl {

// The first GPU, or else the first device of any other kind. Throws Error(device) where there is
// none, or where this build has no OpenCL.
std::unique_ptr<gpu::Device> open_device();

}  // namespace weft::opencl
