// Declares the CUDA backend. Every build includes it; NVIDIA's libraries are loaded on first use.
#pragma once

#include <memory>
#include <string>

#include "weft/device/device.h"

namespace weft {

// Returns the library for a GPU by the driver's number ("" is the first), or for a model of the
// catalogue by id: plans are for that model, and runs need it. Throws Error(failed) for an unknown
// name.
std::unique_ptr<KernelLibrary> cuda_library(const std::string& which = "");
std::string cuda_same_as(const std::string& which);  // "0" for "", "h200" for "H200"

namespace cuda {
// Returns whether there is a usable GPU. Warns if there is one that is not usable.
bool has_device();
// Returns how many GPUs the driver shows; 0 without a driver.
int device_count();
}  // namespace cuda

}  // namespace weft
