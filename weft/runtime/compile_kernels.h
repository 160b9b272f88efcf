// The kernels of a plan, compiled by its library and tried where that may refuse them.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "weft/base/device_memory.h"
#include "weft/base/error.h"
#include "weft/device/choice.h"
#include "weft/device/compiler.h"
#include "weft/ir/plan.h"
#include "weft/runtime/residency.h"

namespace weft {

// Steps of a plan whose kernels their libraries refuse to compile or to run on this device
// (KernelChooser::may_refuse). They are avoided from then on.
struct KernelsRefused : Error {
  explicit KernelsRefused(std::vector<std::string> all)
      : Error(ErrorKind::device, "{}", all.front()), refusals(std::move(all)) {}
  // In the order of the steps; of each what the library says, its kernel, its module.
  std::vector<std::string> refusals;
};

using StepKernels =
    std::vector<std::unique_ptr<Kernel>>;  // by the step; null: none is compiled for it

// Several at once. Throws KernelsRefused.
StepKernels compile_kernels(const Plan& plan, const KernelCompiler& compiler,
                            const KernelChooser& chooser, DeviceMemory& memory);
// Runs each that the library may refuse once, on numbers that mean nothing, in an arena that is
// there. Throws KernelsRefused.
void try_kernels(const Plan& plan, const StepKernels& kernels, const KernelChooser& chooser,
                 DeviceMemory& memory, const Residency& residency);

// The same error with the step's kernel before the hint, if there is one. Where nobody waited for
// each, a kernel before step `i` may have failed.
Error error_of_step(const Plan& plan, size_t i, const Error& error, bool waited);

}  // namespace weft
