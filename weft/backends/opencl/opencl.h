// Declares the OpenCL backend.
#pragma once

#include <memory>
#include <string>

#include "weft/device/device.h"

namespace weft {

// Returns the library of the device that `which` names, as opencl::open_device does.
std::unique_ptr<KernelLibrary> opencl_library(const std::string& which = "");
// Returns the number of that device as text; `which` where there is none.
std::string opencl_same_as(const std::string& which);
int opencl_device_count();

}  // namespace weft
