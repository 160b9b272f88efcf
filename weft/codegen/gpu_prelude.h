// The prelude precedes the generated kernels in a GPU program. It names what OpenCL C and CUDA C
// spell differently and defines the helpers of gpu_scalar.h. Below it the text of a kernel is the
// same in both, except for warp shuffles. KERNEL_BY limits registers so that `groups` groups are
// resident on a multiprocessor.
#pragma once

#include <cstdint>
#include <string>

#include "weft/codegen/loop_ir.h"

namespace weft::loop {

enum class GpuLanguage : uint8_t { opencl, cuda };

std::string gpu_prelude(GpuLanguage language);

// CUDA's functions are within 2 ULP (CUDA Programming Guide, mathematical functions), in a third of
// our instructions; OpenCL guarantees less.
constexpr Maths maths_of(GpuLanguage language) {
  return language == GpuLanguage::cuda ? Maths::called : Maths::own;
}

}  // namespace weft::loop
