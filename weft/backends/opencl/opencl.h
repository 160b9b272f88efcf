// The OpenCL backend.
#pragma once

#include <memory>
#include <string>

#include "weft/device/device.h"

namespace weft {

// Of the device that `which` names (opencl::open_device_called); empty: of the best one.
std::unique_ptr<KernelLibrary> opencl_library(const std::string& which = "");

}  // namespace weft
