// Matrix products by cuBLASLt, NVIDIA's library for them (https://docs.nvidia.com/cuda/cublas):
// float16 and bfloat16 on tensor cores with float32 sums, float32, float64. It is loaded when the
// first product is compiled.
#pragma once

#include <memory>

#include "weft/backends/cuda/cublaslt_api.h"
#include "weft/backends/cuda/shared_library.h"
#include "weft/backends/gpu/library.h"

namespace weft::cuda {

std::unique_ptr<gpu::Provider> cublaslt_provider();
// Throws Error(device) where the library is not.
SharedLibrary open_cublaslt();

namespace cublaslt {
struct Library : Functions {
  Library();
  void check(int status, const char* call) const;  // throws Error(device), but for status 0

  SharedLibrary library = open_cublaslt();
};
const Library& library();
}  // namespace cublaslt

}  // namespace weft::cuda
