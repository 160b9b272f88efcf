// NVTX ranges (https://docs.nvidia.com/nvtx): NVIDIA's profilers show kernels by the module that
// they come from.
#pragma once

#include <memory>
#include <string>

#include "weft/device/device.h"

namespace weft::cuda {

// `kernel` in a range of that name where a profiler is attached and NVTX is installed, else as it
// is. What a graph replays has no ranges: they are those of a step's first run.
std::unique_ptr<Kernel> in_range(std::unique_ptr<Kernel> kernel, const std::string& name);

}  // namespace weft::cuda
