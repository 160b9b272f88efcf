// Prints a scheduled kernel as OpenCL C or CUDA C: one function per launch, in launch order. The
// text is compiled below gpu_prelude(language); a program may hold several kernels.
#pragma once

#include <string>
#include <vector>

#include "weft/codegen/gpu_prelude.h"
#include "weft/codegen/gpu_schedule.h"

namespace weft::loop {

struct GpuLaunch {
  std::string function;
  int64_t groups = 0;  // 0: no work
  int threads = 0;     // per group
};

// GpuKernel is the source of a kernel and its launches. The parameters of each function are, for
// every operand, then every result, then scratch, a pointer to its memory and an i64 byte offset of
// its slot. A slot begins at a multiple of buffer_alignment in memory that kernels see.
struct GpuKernel {
  std::string source;
  std::vector<GpuLaunch> launches;
  size_t scratch = 0;  // bytes
};

// Prints `kernel`; the names of its functions begin with `prefix`.
GpuKernel emit_gpu(const Kernel& kernel, const GpuSchedule& schedule, GpuLanguage language,
                   const std::string& prefix);

// Returns the log of a compiler followed by the source lines that it mentions as "NAME(12): ..." or
// "NAME:12:5: ...".
std::string with_source_lines(const std::string& log, const std::string& source);

}  // namespace weft::loop
