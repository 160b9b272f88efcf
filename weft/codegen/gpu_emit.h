// Prints a scheduled kernel as OpenCL C or CUDA C: one function for each launch, which follow each
// other. To be compiled below gpu_prelude(language), several kernels in one program or one.
#pragma once

#include <string>
#include <vector>

#include "weft/codegen/gpu_prelude.h"
#include "weft/codegen/gpu_schedule.h"

namespace weft::loop {

struct GpuLaunch {
  std::string function;
  int64_t groups = 0;  // 0: nothing to do
  int threads = 0;     // of a group
};

// The parameters of each function: for every operand, then every result, then scratch, a pointer to
// the memory it lies in and, as i64, the bytes from there to its slot. Where a slot begins, in
// memory that kernels see, is a multiple of buffer_alignment.
struct GpuKernel {
  std::string source;
  std::vector<GpuLaunch> launches;
  size_t scratch = 0;  // bytes
};

// Names begin with `prefix`.
GpuKernel emit_gpu(const Kernel& kernel, const GpuSchedule& schedule, GpuLanguage language,
                   const std::string& prefix);

// What a compiler says of a program, with the lines that it speaks of: "NAME(12): ..." or
// "NAME:12:5: ...".
std::string with_source_lines(const std::string& log, const std::string& source);

}  // namespace weft::loop
