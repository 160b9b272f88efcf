// Runs groups of threads on one host thread: each runs until it waits for its group (__syncthreads)
// or its warp (__shfl_sync).
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace fake {

struct Position {
  unsigned x, y, z;
};
// A Kernel is one as defined by cuda_c.h, in a loaded module.
struct Kernel {
  std::string name;
  void (*call)(const uint64_t* arguments) = nullptr;
  int parameters = 0;  // of 8 bytes each
  Position *thread = nullptr, *group = nullptr, *threads = nullptr, *groups = nullptr;
};

// Returns the kernel of that name in a module of dlopen(); `call` is null where there is none.
Kernel kernel_in(void* module, const std::string& name);
// Runs a launch. Ends the process with a message where threads wait for one that has ended, or
// where a warp waits at two places.
void run(const Kernel& kernel, unsigned groups, unsigned threads,
         std::span<const uint64_t> arguments);

}  // namespace fake
