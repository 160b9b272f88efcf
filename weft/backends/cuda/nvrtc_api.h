// Declares the functions of NVRTC that weft uses (https://docs.nvidia.com/cuda/nvrtc).
// tests/cuda_headers compares them with NVIDIA's header.
#pragma once

#include <cstddef>

namespace weft::cuda::nvrtc {

using Handle = void*;  // nvrtcProgram

// Functions return 0 on success.
struct Functions {
  int (*create)(Handle*, const char* source, const char* name, int headers,
                const char* const* header_sources, const char* const* header_names) = nullptr;
  int (*destroy)(Handle*) = nullptr;
  int (*build)(Handle, int options, const char* const* option) = nullptr;
  int (*log_bytes)(Handle, size_t*) = nullptr;
  int (*log)(Handle, char*) = nullptr;
  int (*cubin_bytes)(Handle, size_t*) = nullptr;
  int (*cubin)(Handle, char*) = nullptr;
  const char* (*error_text)(int) = nullptr;
  int (*version)(int* major, int* minor) = nullptr;
};

}  // namespace weft::cuda::nvrtc
