// Matrix products by cuBLASLt, NVIDIA's library for them (https://docs.nvidia.com/cuda/cublas):
// float16 and bfloat16 on tensor cores with float32 sums, float32, float64. It is loaded when the
// first product is compiled.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "weft/backends/cuda/cublaslt_api.h"
#include "weft/backends/cuda/shared_library.h"
#include "weft/backends/gpu/library.h"

namespace weft::cuda {

std::unique_ptr<gpu::Provider> cublaslt_provider();

namespace cublaslt {
struct Library : Functions {
  Library();
  void check(int status, const char* call) const;  // throws Error(device), but for status 0
  int cuda() const { return static_cast<int>(version() / 10000); }  // 13: it is CUDA 13's

  SharedLibrary library{{"libcublasLt.so.13", "libcublasLt.so.12"},
                        "it comes with CUDA, and with Python's package nvidia-cublas."};
};
const Library& library();  // throws Error(device) where there is none

// Multiples of which addresses are, in bytes; of operands by the library's names.
struct Alignments {
  uint32_t a, b, c, d;
};
// The algorithms that weft may take, within so many bytes of workspace: the first is the one that
// the library holds to be the fastest. `layouts`: of a, of b, of c and d.
std::vector<Found> candidates(Handle handle, Handle matmul, const std::array<Handle, 3>& layouts,
                              const Alignments& alignments, size_t workspace);
}  // namespace cublaslt

}  // namespace weft::cuda
