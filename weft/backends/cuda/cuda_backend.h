// The CUDA backend. It is part of every build; NVIDIA's libraries are loaded when it is first used.
#pragma once

#include <memory>
#include <string>

#include "weft/device/device.h"

namespace weft {

// Of one of the GPUs that the driver shows, by its number, "" the first; or of a model of the
// catalogue, by its id: plans are for that one, here or not, and running them needs it. Throws
// Error(failed) where there is none of that name.
std::unique_ptr<KernelLibrary> cuda_library(const std::string& which = "");
std::string cuda_same_as(const std::string& which);  // "0" for "", "h200" for "H200"

namespace cuda {
// Whether there is a GPU that can be used. Warns where there is one, but it cannot.
bool has_device();
}  // namespace cuda

}  // namespace weft
