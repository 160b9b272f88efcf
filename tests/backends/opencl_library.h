// Declares the OpenCL library that tests of GPU kernels share, where there is a device.
#pragma once

#include "weft/device/device.h"

namespace weft::testing {

// Returns the library; null, with a report of a skipped test, where it has no device.
const KernelLibrary* with_device(const KernelLibrary& library);
// Returns the library of generated kernels on an OpenCL device, or null likewise.
const KernelLibrary* generated_opencl_library();

}  // namespace weft::testing
