// A kernel by itself that converts numbers, for those that need their operands or results in
// another type.
#pragma once

#include <memory>

#include "weft/backends/gpu/device.h"

namespace weft::gpu {

// `count` numbers that lie densely, to as many: run({from}, {to}, null).
std::unique_ptr<Kernel> make_conversion(Device& device, DType from, DType to, int64_t count);

}  // namespace weft::gpu
