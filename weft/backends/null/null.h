// The null library plans like another library and runs nothing, for plans of hardware or sizes that
// are not available here.
#pragma once

#include <memory>

#include "weft/device/device.h"

namespace weft {

// Returns the null library of `of`, which must outlive it. Its kernels touch no memory.
std::unique_ptr<KernelLibrary> null_library(const KernelLibrary& of);

}  // namespace weft
