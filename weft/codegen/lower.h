// Lowers a fused kernel launch of a plan to the loop IR.
#pragma once

#include "weft/codegen/gpu_prelude.h"
#include "weft/ir/loop_ir.h"
#include "weft/ir/plan.h"

namespace weft::loop {

// Lowers `launch`. Axes of extent 1 are dropped and axes that every access traverses as one are
// merged, so equal work gives equal kernels. Throws InternalError if `launch` is not one kernel
// (can_fuse says why).
Kernel lower(const Launch& launch);
// Lowers `launch` for a GPU: the loop that finds the maximum also computes a sum of exponentials
// where that saves a loop that would read rows again. CPUs do not use this, so that their results
// keep their bits.
Kernel lower(const Launch& launch, GpuLanguage language);

}  // namespace weft::loop
