// Horizontal fusion merges elementwise kernels that differ only in the number and the addresses of
// their elements, such as the updates of all parameters, into one launch. A table in memory has a
// row per kernel, in which thread groups look up theirs. Only CUDA has joined kernels, as the table
// holds addresses.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "weft/codegen/gpu_emit.h"

namespace weft::loop {

struct GpuForm {
  std::string text;           // equal for kernels of one form
  std::vector<int> operands;  // operands of the kernel, in the order of their first loads
};
// Returns the form of `kernel`, or nullopt if its threads share data (GpuSchedule::Form), so that
// it needs a launch of its own.
std::optional<GpuForm> form_of(const Kernel& kernel, GpuLanguage language);

// A JoinedPart is the row of one kernel in the table that the joined kernel reads: 64-bit words.
struct JoinedPart {
  int64_t first = 0;             // first thread group of the kernel
  int64_t positions = 0;         // positions of threads, `vector` neighbours each
  std::vector<int64_t> offsets;  // bytes from the slot of each operand, then of each result
};
// JoinedKernels is one launch that does the work of several kernels, each in thread groups of its
// own.
struct JoinedKernels {
  Kernel kernel;  // of the part with the largest extent; rows give each part's addresses
  GpuSchedule schedule;
  int64_t groups = 0;
  std::vector<JoinedPart> parts;
};
// Joins kernels of one form, whose operands are in the order of GpuForm::operands.
JoinedKernels joined(const std::vector<Kernel>& kernels, GpuLanguage language);

// Returns the words of a row: JoinedPart's `first` and `positions`, then the addresses of the
// elements of operands and results.
size_t words_of_row(int operands_and_results);
// Prints one launch. Its only parameter is scratch, which holds the table.
GpuKernel emit_joined(const JoinedKernels& kernels, GpuLanguage language,
                      const std::string& prefix);

}  // namespace weft::loop
