// Groups of threads on one thread of the host: each goes on until it waits for others of its group
// (__syncthreads) or of its warp (__shfl_sync).
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace fake {

struct Position {
  unsigned x, y, z;
};
// A kernel as cuda_c.h has it, in a module that was loaded.
struct Kernel {
  std::string name;
  void (*call)(const uint64_t* arguments) = nullptr;
  int parameters = 0;  // of 8 bytes each
  Position *thread = nullptr, *group = nullptr, *threads = nullptr, *groups = nullptr;
};

// The kernel of that name in what dlopen() gave; `call` is null where there is none.
Kernel kernel_in(void* module, const std::string& name);
// Ends the process, with a line that says why, where threads wait for one that has ended, or a warp
// is at two places.
void run(const Kernel& kernel, unsigned groups, unsigned threads,
         std::span<const uint64_t> arguments);

}  // namespace fake
