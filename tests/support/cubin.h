// Reads the resources of kernels from the machine code of an NVIDIA GPU (a cubin, an ELF file).
// Source: the attributes of section .nv.info, as `cuobjdump -elf` names them.
#pragma once

#include <string>
#include <vector>

namespace weft::testing {

struct KernelResources {
  std::string name;
  int registers = 0;  // per thread
  int stack = 0;      // bytes of local memory per thread: spilled registers and local arrays
};

// Returns the resources of every kernel and of every function that kernels call. Throws
// InternalError if the file is not 64-bit ELF.
std::vector<KernelResources> resources_of(const std::string& cubin);

}  // namespace weft::testing
