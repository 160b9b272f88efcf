// Kernels of one form as one launch (horizontal fusion): elementwise kernels that differ in nothing
// but how many elements they have and where those lie, such as the updates of all parameters. A
// table in memory has a row for each: groups of threads find theirs in it. CUDA only, as the table
// has addresses.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "weft/codegen/gpu_emit.h"

namespace weft::loop {

struct GpuForm {
  std::string text;           // equal where kernels are of one form
  std::vector<int> operands;  // of the kernel, in the order in which its code first loads them
};
// nullopt: threads share something (GpuSchedule::Form), so that it is a launch of its own.
std::optional<GpuForm> form_of(const Kernel& kernel, GpuLanguage language);

// A row of the table: words of 64 bits.
struct JoinedPart {
  int64_t first = 0;             // group of threads that takes its first positions
  int64_t positions = 0;         // each of as many neighbours as a thread takes
  std::vector<int64_t> offsets;  // bytes from the slot of each operand, then of each result
};
struct JoinedKernels {
  Kernel kernel;  // of the most positions; its elements begin where a row says
  GpuSchedule schedule;
  int64_t groups = 0;
  std::vector<JoinedPart> parts;
};
// The kernels have one form, and their operands stand in its order.
JoinedKernels joined(const std::vector<Kernel>& kernels, GpuLanguage language);

// The words of a row: JoinedPart's two, then addresses of the elements of operands and results.
size_t words_of_row(int operands_and_results);
// One launch, which has no parameters but scratch: the table.
GpuKernel emit_joined(const JoinedKernels& kernels, GpuLanguage language,
                      const std::string& prefix);

}  // namespace weft::loop
