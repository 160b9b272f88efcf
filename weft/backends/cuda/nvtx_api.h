// Declares the functions of NVTX that weft uses (https://nvidia.github.io/NVTX). tests/cuda_headers
// compares them with NVIDIA's header.
#pragma once

namespace weft::cuda::nvtx {

struct Functions {
  int (*push)(const char* name) = nullptr;
  int (*pop)() = nullptr;
};

}  // namespace weft::cuda::nvtx
