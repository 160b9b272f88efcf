// Compiles fused kernel launches of a plan for the host CPU: Launch -> loop IR (lower.h) -> CPU
// schedule (schedule.h) -> LLVM IR (llvm_emit.h) -> machine code (llvm_jit.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "weft/device/kernel_code.h"
#include "weft/ir/plan.h"

namespace weft {

// KernelStage is one parallel loop of a kernel: `fn` computes positions [begin, end) of [0,
// extent). Each thread has its own `thread_scratch`; all threads share `shared`. Results do not
// depend on how the range is divided. Pointers are aligned to buffer_alignment.
struct KernelStage {
  using Function = void (*)(void* const* operands, void* const* results, void* thread_scratch,
                            void* shared, int64_t begin, int64_t end);
  Function fn = nullptr;
  int64_t extent = 0;
};

// CompiledKernel holds the stages of a fused kernel, which run one after the other. Most kernels
// have one stage; a reduction with few results and many elements has a stage of partial results and
// one that combines them.
struct CompiledKernel {
  std::vector<KernelStage> stages;
  size_t shared_scratch =
      0;  // bytes, at the start of the workspace; a multiple of buffer_alignment
  size_t scratch_per_thread = 0;  // bytes per thread, after it; a multiple of buffer_alignment
  double work = 0;                // estimated nanoseconds on one core
  std::shared_ptr<void> code;     // owns the machine code
};

// Returns whether codegen can compile `launch` to one kernel: one iteration space, reductions over
// the same axes, gathers from operands in memory. Otherwise `why`, if given, gets the reason.
bool can_fuse(const Launch& launch, std::string* why = nullptr);

// CpuTarget describes the CPU for which kernels are compiled; 0 stands for this machine's value.
struct CpuTarget {
  int vector_bytes = 0;  // 16, 32 or 64
  // Results of at least this size use non-temporal stores, which do not read their lines first: no
  // cache holds such a result until it is read.
  size_t stream_bytes = 0;
};

// Returns the bytes of workspace, a multiple of buffer_alignment, that run_kernel needs on up to
// `threads` threads. Compiles nothing.
size_t workspace_bytes(const Launch& launch, int threads, const CpuTarget& target = {});

// Returns the extent of the kernel's only stage; 0 where it has several. Compiles nothing.
int64_t stage_extent(const Launch& launch, const CpuTarget& target = {});

// Compiles `launch`. Thread safe and concurrent: identical kernels compile once per process and are
// cached on disk in cache_directory()/kernels. Throws InternalError if can_fuse(launch) is false.
CompiledKernel compile_cpu(const Launch& launch, const CpuTarget& target = {});

// Return and take the machine code of kernels, as KernelCompiler does.
std::string cpu_code_identity();
void collect_cpu_code();
std::vector<KernelCode> cpu_code();
void add_cpu_code(const std::vector<KernelCode>& codes);

// Runs all stages on up to thread_count() threads. The pointers are the starts of the slots, in the
// order of the launch's operands and results; offsets and strides are compiled in. Allocates
// nothing.
void run_kernel(const CompiledKernel& kernel, void* const* operands, void* const* results,
                void* workspace);

// Returns the loop IR and the CPU schedule of `launch` as text, for debugging and snapshots.
std::string kernel_text(const Launch& launch, const CpuTarget& target = {});

}  // namespace weft
