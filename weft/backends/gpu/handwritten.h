// Declares the handwritten kernels of operations for which generated loops would read too much.
#pragma once

#include <memory>

#include "weft/backends/gpu/library.h"

namespace weft::gpu {

// Prints the kernel of a launch that handwritten_kernels() chose.
loop::GpuKernel print_handwritten(const Launch& launch, loop::GpuLanguage language,
                                  const std::string& prefix);

// Returns the provider "weft" of all handwritten kernels.
std::unique_ptr<Provider> handwritten_kernels();

}  // namespace weft::gpu
