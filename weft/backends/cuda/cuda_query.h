// Queries the driver for its GPUs, and checks whether weft can use one. A `device` is the driver's
// CUdevice.
#pragma once

#include <string>

#include "weft/backends/cuda/nvrtc.h"

namespace weft::cuda {

int device_at(int number);  // throws Error(device) if there is none
int value_of(int device, int attribute);
int capability_of(int device);  // 90 for 9.0
std::string name_of(int device);
std::string uuid_of(int device);  // as NVML writes it

// Returns the compute capability; throws Error(device) where it is too low.
int checked_capability(int device);
// Throws Error(device) unless the driver supports NVRTC and cuBLASLt, which every plan needs.
void check_libraries(const Nvrtc& compiler);

}  // namespace weft::cuda
