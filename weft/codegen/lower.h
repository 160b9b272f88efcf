// From a fused step of a plan to the loop IR.
#pragma once

#include "weft/codegen/gpu_prelude.h"
#include "weft/codegen/loop_ir.h"
#include "weft/ir/plan.h"

namespace weft::loop {

// Axes of extent 1 are dropped and axes that every access runs through as one are merged, so equal
// work gives equal kernels. Throws InternalError if the step is not one kernel (can_fuse says why).
Kernel lower(const Step& step);
// For a GPU: sums of exponentials are taken while the largest is found where that saves a loop that
// would read rows again. No CPU has them, whose results keep their bits.
Kernel lower(const Step& step, GpuLanguage language);

}  // namespace weft::loop
