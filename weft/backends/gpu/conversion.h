// Kernels by themselves, for those of libraries: that convert numbers where an operand must have
// another type, and that write zeros behind the elements of one.
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

// Writes zeros where a value of this type would lie: run(null, {slot}, null).
std::unique_ptr<Kernel> make_zeros(Device& device, const Type& type, const Placement& at);

}  // namespace weft::gpu
