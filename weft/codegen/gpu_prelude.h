// What stands at the head of a program of generated GPU kernels: names for what OpenCL C and CUDA C
// spell differently, and the helpers of gpu_scalar.h. Below it the text of a kernel is the same in
// both, but for exchanges within a warp. KERNEL_BY asks for as few registers as let `groups` groups
// run together on a processor of the device.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "weft/codegen/loop_ir.h"

namespace weft::loop {

enum class GpuLanguage : uint8_t { opencl, cuda };

// In OpenCL C it has float64 where HAS_F64 is defined.
std::string gpu_prelude(GpuLanguage language);

// Throws Error(usage) where both languages have no function of that name in C.
void check_device_has(std::string_view function);

// CUDA's functions are within 2 ULP, by a table of NVIDIA's (CUDA Programming Guide, mathematical
// functions), in a third of our instructions; OpenCL promises less. Many OpenCL devices (Intel's
// Arc, Apple's and most mobile ones) have no float64.
constexpr Maths maths_of(GpuLanguage language) {
  return language == GpuLanguage::cuda ? Maths::called : Maths::single;
}

}  // namespace weft::loop
