#include "weft/codegen/llvm_emit.h"

#include <llvm/IR/Verifier.h>
#include <llvm/Support/raw_ostream.h>

#include "weft/base/error.h"
#include "weft/codegen/llvm_emitter.h"

namespace weft::loop {

EmittedKernel emit_llvm(const Kernel& kernel, const CpuSchedule& schedule,
                        llvm::LLVMContext& context, const std::string& prefix) {
  EmittedKernel result = Emitter(kernel, schedule, context, prefix).run();
  std::string problem;
  llvm::raw_string_ostream stream(problem);
  bool broken = llvm::verifyModule(*result.module, &stream);
  WEFT_ASSERT(!broken, "broken LLVM module: {}", problem);
  return result;
}

}  // namespace weft::loop
