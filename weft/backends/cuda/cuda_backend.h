// The CUDA backend. It is part of every build; NVIDIA's libraries are loaded when it is first used.
#pragma once

#include <memory>

#include "weft/device/device.h"

namespace weft {

std::unique_ptr<KernelLibrary> cuda_library();

namespace cuda {
// Whether there is a driver that shows a GPU.
bool has_device();
}  // namespace cuda

}  // namespace weft
