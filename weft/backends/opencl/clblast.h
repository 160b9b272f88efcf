// Matrix products by CLBlast (Nugteren 2018, https://github.com/CNugteren/CLBlast), tuned for many
// devices, of float32. Its products of float16 are summed in float16, and those of float64 run on
// devices that have it only, so they stay with the loops.
#pragma once

#include <memory>

#include "weft/backends/gpu/library.h"

namespace weft::opencl {

// Loads CLBlast. Null where it is not there: the loops multiply.
std::unique_ptr<gpu::Provider> clblast_provider();

}  // namespace weft::opencl
