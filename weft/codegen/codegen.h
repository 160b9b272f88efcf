// Compiles fused steps of a plan for the host CPU: Step -> loop IR (lower.h) -> CPU schedule
// (schedule.h) -> LLVM (llvm_emit.h) -> machine code (llvm_jit.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "weft/ir/plan.h"

namespace weft {

// One parallel loop of a kernel: fn runs positions [begin, end) of [0, extent). `thread_scratch` is
// the caller's own; `shared` is the same for all. Results do not depend on how the range is cut up.
// Pointers are to multiples of buffer_alignment.
struct KernelStage {
  using Function = void (*)(void* const* operands, void* const* results, void* thread_scratch,
                            void* shared, int64_t begin, int64_t end);
  Function fn = nullptr;
  int64_t extent = 0;
};

// A compiled fused kernel: stages that run one after the other. Most have one; reductions with few
// results and many elements have a stage of partial results and one that combines them.
struct CompiledKernel {
  std::vector<KernelStage> stages;
  size_t shared_scratch = 0;      // bytes, first in the workspace; a multiple of buffer_alignment
  size_t scratch_per_thread = 0;  // bytes for each thread, after it; a multiple of buffer_alignment
  double work = 0;                // about how many nanoseconds it takes on one core
  std::shared_ptr<void> code;     // keeps the machine code alive
};

// Whether `step` is one kernel that codegen can make: one iteration space, reductions over the same
// axes, gather and scatter from memory. `why`, if given, gets the reason where not.
bool can_fuse(const Step& step, std::string* why = nullptr);

// What kernels are made for; 0: as this machine has it.
struct CpuTarget {
  int vector_bytes = 0;  // 16, 32 or 64
  // Results from this size on are stored past the caches, so that their lines are not read first:
  // what no cache holds until its reader comes.
  size_t stream_bytes = 0;
};

// Bytes of workspace, aligned as buffer_alignment, that run_kernel needs on up to `threads`
// threads. Compiles nothing.
size_t workspace_bytes(const Step& step, int threads, const CpuTarget& target = {});

// Thread safe, several at once; identical kernels compile once per process and are kept on disk in
// cache_directory()/kernels. Throws InternalError if can_fuse(step) is false.
CompiledKernel compile_cpu(const Step& step, const CpuTarget& target = {});

// Runs all stages on up to thread_count() threads. Pointers are to the slots, in the step's order;
// offsets and strides are in the code. Allocates nothing.
void run_kernel(const CompiledKernel& kernel, void* const* operands, void* const* results,
                void* workspace);

// The loop IR and the CPU schedule of a step, as text: for debugging and snapshots.
std::string kernel_text(const Step& step, const CpuTarget& target = {});

}  // namespace weft
