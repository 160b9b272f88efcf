// Compiles the kernels of a plan with its library and tries those that the library may refuse.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "weft/base/error.h"
#include "weft/base/memory/device_memory.h"
#include "weft/device/choice.h"
#include "weft/device/compiler.h"
#include "weft/ir/bindings.h"
#include "weft/runtime/residency.h"

namespace weft {

class Communicator;

// Thrown if libraries refuse to compile kernels of a plan or to run them on this device
// (KernelChooser::may_refuse). The chooser avoids these kernels from then on.
struct KernelsRefused : Error {
  explicit KernelsRefused(std::vector<std::string> all)
      : Error(ErrorKind::device, "{}", all.front()), refusals(std::move(all)) {}
  // `refusals` has one line per refused launch: the library's message, the kernel and the module.
  std::vector<std::string> refusals;
};

using PlanKernels =
    std::vector<std::unique_ptr<Kernel>>;  // by launch; null: it has no compiled kernel

// Adds the kernels of the plan's collectives, which exchange values with other ranks. Where poison
// fills dead bytes, the ranks are done with them before.
void compile_collectives(const Plan& plan, Communicator* ranks, bool poisons, PlanKernels& kernels);
// Moves variables that the plan gathers from all ranks to memory that is theirs in common, so that
// a host holds them once.
void share_gathered(const BoundPlan& bound, Communicator& ranks);
// Compiles several kernels in parallel, and binds them to their variables. Throws KernelsRefused.
PlanKernels compile_kernels(const BoundPlan& bound, const KernelCompiler& compiler,
                            const KernelChooser& chooser, DeviceMemory& memory);
// Runs each kernel that the library may refuse once, on arbitrary contents of the allocated arena.
// Throws KernelsRefused.
void try_kernels(const Plan& plan, const PlanKernels& kernels, const KernelChooser& chooser,
                 DeviceMemory& memory, const Residency& residency);

// Returns the error with the launch's kernel named, before the hint if there is one. Unless
// `waited` (the host waited for each kernel), a kernel before launch `i` may have failed.
Error error_of_launch(const Plan& plan, size_t i, const Error& error, bool waited);

}  // namespace weft
