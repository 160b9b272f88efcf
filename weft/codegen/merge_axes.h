// Makes the iteration space of a kernel as small as its accesses allow.
#pragma once

#include "weft/ir/loop_ir.h"

namespace weft::loop {

// Drops axes of extent 1, merges pairs of axes that every access traverses as if they were one, and
// orders the rest by stride, so that the last axis is the most contiguous. Leaves at least one.
void merge_axes(Kernel& kernel);

}  // namespace weft::loop
