// The CUDA backend. It is part of every build; NVIDIA's libraries are loaded when it is first used.
#pragma once

#include <memory>
#include <string>

#include "weft/device/catalogue.h"
#include "weft/device/device.h"

namespace weft {

// Of one of the GPUs that the driver shows. With a `model`, plans are for that one, here or not,
// and running them needs it.
std::unique_ptr<KernelLibrary> cuda_library(int number = 0, const GpuModel* model = nullptr);
// Of the GPU that `which` names: by its number, or a model by its id in the catalogue. Throws
// Error(failed) where there is none of that name.
std::unique_ptr<KernelLibrary> cuda_library(const std::string& which);

namespace cuda {
// Whether there is a driver that shows a GPU, and a compiler for it.
bool has_device();
}  // namespace cuda

}  // namespace weft
