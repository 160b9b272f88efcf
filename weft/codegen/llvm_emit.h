// Prints a scheduled kernel as an LLVM module: one function per stage (KernelStage::Function).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <llvm/IR/Module.h>

#include "weft/codegen/schedule.h"

namespace weft::loop {

struct EmittedStage {
  std::string function;
  int64_t extent = 0;
};

struct EmittedKernel {
  std::unique_ptr<llvm::Module> module;
  std::vector<EmittedStage> stages;
};

// Emits `kernel`; the names of its functions begin with `prefix`.
EmittedKernel emit_llvm(const Kernel& kernel, const CpuSchedule& schedule,
                        llvm::LLVMContext& context, const std::string& prefix);

}  // namespace weft::loop
