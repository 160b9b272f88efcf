// Plans like another library, and runs nothing: for plans of hardware or sizes that are not here.
#pragma once

#include <memory>

#include "weft/device/device.h"

namespace weft {

// `of` must outlive the result. Its kernels run without touching memory.
std::unique_ptr<KernelLibrary> null_library(const KernelLibrary& of);

}  // namespace weft
