// What stands at the head of a program of generated GPU kernels: names for what OpenCL C and CUDA C
// spell differently, and the helpers of gpu_scalar.h. Below it the text of a kernel is the same in
// both, but for exchanges within a warp. KERNEL_BY asks for as few registers as let `groups` groups
// run together on a processor of the device.
#pragma once

#include <cstdint>
#include <string>

#include "weft/codegen/loop_ir.h"

namespace weft::loop {

enum class GpuLanguage : uint8_t { opencl, cuda };

std::string gpu_prelude(GpuLanguage language);

// CUDA's functions are within 2 ULP, by a table of NVIDIA's (CUDA Programming Guide, mathematical
// functions), in a third of our instructions; OpenCL promises less.
constexpr Maths maths_of(GpuLanguage language) {
  return language == GpuLanguage::cuda ? Maths::called : Maths::own;
}

}  // namespace weft::loop
