// The reference backend has one naive kernel per primitive, which accumulates in float64 (integers
// in int64). It is slow and obviously correct: the oracle for every other backend.
#pragma once

#include <memory>

#include "weft/device/device.h"

namespace weft {

// Returns a library that generates no kernels and overrides no composite: every launch is one
// primitive, kernel "ref:<op>".
std::unique_ptr<KernelLibrary> reference_library();

}  // namespace weft
