// The CUDA backend. It is part of every build; NVIDIA's libraries are loaded when it is first used.
#pragma once

#include <memory>

#include "weft/device/catalogue.h"
#include "weft/device/device.h"

namespace weft {

// Of the first GPU that the driver shows. With a `model`, plans are for that one, here or not, and
// running them needs it.
std::unique_ptr<KernelLibrary> cuda_library(const GpuModel* model = nullptr);

namespace cuda {
// Whether there is a driver that shows a GPU, and a compiler for it.
bool has_device();
}  // namespace cuda

}  // namespace weft
