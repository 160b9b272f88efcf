// The host CPU: fused steps through weft/codegen, contractions, pooling and scatter_add through the
// library kernels of this folder.
#pragma once

#include <memory>

#include "weft/device/device.h"

namespace weft {

std::unique_ptr<KernelLibrary> cpu_library();

}  // namespace weft
