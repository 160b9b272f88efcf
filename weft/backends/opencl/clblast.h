// Matrix products by CLBlast (Nugteren 2018, https://github.com/CNugteren/CLBlast), tuned for many
// devices: float32 and float64. Its products of float16 are summed in float16, so they stay with
// the loops.
#pragma once

#include <memory>

#include "weft/backends/gpu/library.h"

namespace weft::opencl {

// Null where this build has no CLBlast.
std::unique_ptr<gpu::Provider> clblast_provider();

}  // namespace weft::opencl
