// The CPU backend runs fused launches with kernels of weft/codegen; matrix products, convolutions,
// attention, pooling, scatter_add and sorting with the library kernels of this folder.
#pragma once

#include <memory>

#include "weft/device/device.h"

namespace weft {

std::unique_ptr<KernelLibrary> cpu_library();

}  // namespace weft
