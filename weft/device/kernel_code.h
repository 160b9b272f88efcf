// KernelCode is the machine code of one generated kernel, as a compiler collects it for a file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace weft {

struct KernelCode {
  // SHA-256 of all that the code depends on besides the machine and KernelCompiler::identity().
  std::string key;
  std::string object;                                 // an object file
  std::vector<std::string> functions;                 // one for each stage of the kernel
  std::vector<int64_t> extents;                       // of the stages
  size_t shared_scratch = 0, scratch_per_thread = 0;  // bytes
  double work = 0;                                    // estimated nanoseconds on one core
};

}  // namespace weft
