// Computes matrix products in float32 by CLBlast (Nugteren 2018,
// https://github.com/CNugteren/CLBlast), which is tuned for many devices. float16 and float64 use
// generated loops: CLBlast accumulates float16 in float16, and float64 needs device support.
#pragma once

#include <memory>

#include "weft/backends/gpu/library.h"

namespace weft::opencl {

// Loads CLBlast. Returns null if it is not installed; products then use loops.
std::unique_ptr<gpu::Provider> clblast_provider();

}  // namespace weft::opencl
