// NVTX ranges (https://docs.nvidia.com/nvtx): NVIDIA's profilers show kernels by the module that
// they come from.
#pragma once

#include <memory>
#include <string>

#include "weft/device/compiler.h"

namespace weft::cuda {

// Whether a profiler is attached and NVTX is installed.
bool has_ranges();
// `kernel` in a range of that name where there are ranges, else as it is.
std::unique_ptr<Kernel> in_range(std::unique_ptr<Kernel> kernel, const std::string& name);

}  // namespace weft::cuda
