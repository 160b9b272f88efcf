// A kernel by itself that converts numbers, for those that need their operands or results in
// another type.
#pragma once

#include <memory>

#include "weft/backends/gpu/device.h"

namespace weft::gpu {

// Numbers that lie side by side in a slot, from element `offset` on.
struct Row {
  DType dtype;
  int64_t offset = 0;
};
// Of `count` numbers: run({slot of from}, {slot of to}, null).
std::unique_ptr<Kernel> make_conversion(Device& device, const Row& from, const Row& to,
                                        int64_t count);

}  // namespace weft::gpu
