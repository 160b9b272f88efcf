// The reference backend: one naive kernel per primitive, accumulating in float64 (integers in
// int64). Slow and obviously correct: the oracle for every other backend.
#pragma once

#include <memory>

#include "weft/device/device.h"

namespace weft {

// Generates nothing and overrides no composite: every step is one primitive, kernel "ref:<op>".
std::unique_ptr<KernelLibrary> reference_library();

}  // namespace weft
