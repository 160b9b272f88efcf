// What stands at the head of a program of generated GPU kernels: names for what OpenCL C and CUDA C
// spell differently, and the helpers of gpu_scalar.h. Below it the text of a kernel is the same in
// both, but for exchanges within a warp.
#pragma once

#include <cstdint>
#include <string>

namespace weft::loop {

enum class GpuLanguage : uint8_t { opencl, cuda };

std::string gpu_prelude(GpuLanguage language);

}  // namespace weft::loop
