// What the machine code of an NVIDIA GPU (a cubin, an ELF file) says that its kernels need. Source:
// the attributes of section .nv.info, as `cuobjdump -elf` names them.
#pragma once

#include <string>
#include <vector>

namespace weft::testing {

struct KernelResources {
  std::string name;
  int registers = 0;  // of a thread
  int stack = 0;      // bytes of a thread in memory: registers that were spilled, and local arrays
};

// Of every kernel, and of every function that one calls. Throws InternalError on what is no 64-bit
// ELF file.
std::vector<KernelResources> resources_of(const std::string& cubin);

}  // namespace weft::testing
