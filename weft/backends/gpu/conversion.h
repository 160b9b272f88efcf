// Makes auxiliary kernels for library kernels: they convert the type of an operand, or zero its
// padding.
#pragma once

#include <memory>

#include "weft/backends/gpu/device.h"

namespace weft::gpu {

// A Row is the contiguous elements of a slot from element `offset` on.
struct Row {
  DType dtype;
  int64_t offset = 0;
};
// Makes a kernel that converts `count` elements: run({slot of from}, {slot of to}, null).
std::unique_ptr<Kernel> make_conversion(Device& device, const Row& from, const Row& to,
                                        int64_t count);

// Makes a kernel that zeroes a value of this type and placement: run(null, {slot}, null).
std::unique_ptr<Kernel> make_zeros(Device& device, const Type& type, const Placement& at);

}  // namespace weft::gpu
