// The OpenCL library that tests of GPU kernels share.
#pragma once

#include "weft/device/device.h"

namespace weft::testing {

// Returns null, and reports a skipped test, where there is no device.
const KernelLibrary* opencl_library();

}  // namespace weft::testing
