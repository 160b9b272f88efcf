// The prelude precedes the generated kernels in a GPU program. It names what OpenCL C and CUDA C
// spell differently and defines the helpers of gpu_scalar.h. Below it the text of a kernel is the
// same in both, except for warp shuffles. KERNEL_BY limits registers so that `groups` groups are
// resident on a multiprocessor.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "weft/ir/loop_ir.h"

namespace weft::loop {

enum class GpuLanguage : uint8_t { opencl, cuda };

// The prelude for OpenCL C has float64 where HAS_F64 is defined.
std::string gpu_prelude(GpuLanguage language);

// Throws Error(usage) unless `function` is the name in C of a function that kernels can call.
void check_device_has(std::string_view function);

// CUDA's functions are within 2 ULP, by a table of NVIDIA's (CUDA Programming Guide, mathematical
// functions), in a third of our instructions; OpenCL promises less. Many OpenCL devices (Intel's
// Arc, Apple's and most mobile ones) have no float64.
constexpr Maths maths_of(GpuLanguage language) {
  return language == GpuLanguage::cuda ? Maths::called : Maths::single;
}

}  // namespace weft::loop
