// Makes NVTX ranges (https://docs.nvidia.com/nvtx), which name a kernel's module in NVIDIA's
// profilers.
#pragma once

#include <memory>
#include <string>

#include "weft/device/compiler.h"

namespace weft::cuda {

// Returns whether a profiler is attached and NVTX is installed.
bool has_ranges();
// Wraps `kernel` in a range of that name, or returns it unchanged where there are no ranges.
std::unique_ptr<Kernel> in_range(std::unique_ptr<Kernel> kernel, const std::string& name);

}  // namespace weft::cuda
