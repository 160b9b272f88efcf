// Makes the iteration space of a kernel as small as its accesses allow.
#pragma once

#include "weft/codegen/loop_ir.h"

namespace weft::loop {

// Drops axes of extent 1, merges pairs of axes that every access runs through as if they were one,
// and orders what is left by stride, so that the last axis is the closest in memory. Leaves at
// least one.
void merge_axes(Kernel& kernel);

}  // namespace weft::loop
