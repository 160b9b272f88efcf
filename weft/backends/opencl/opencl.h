// The OpenCL backend.
#pragma once

#include <memory>
#include <string>

#include "weft/device/device.h"

namespace weft {

// Of the device that `which` names, or of the best one (opencl::open_device).
std::unique_ptr<KernelLibrary> opencl_library(const std::string& which = "");
// The number of that device, as text; `which` where there is none.
std::string opencl_same_as(const std::string& which);

}  // namespace weft
