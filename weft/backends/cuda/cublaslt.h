// Computes matrix products by cuBLASLt (https://docs.nvidia.com/cuda/cublas): float16 and bfloat16
// on tensor cores with float32 sums, float32, float64. The library is loaded when a product is
// compiled.
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
// The Library is the loaded libcublasLt.so and its entry points.
struct Library : Functions {
  Library();
  void check(int status, const char* call) const;  // throws Error(device) unless status is 0
  int cuda() const { return static_cast<int>(version() / 10000); }  // 13: part of CUDA 13

  SharedLibrary library{{"libcublasLt.so.13", "libcublasLt.so.12"},
                        "it comes with CUDA, and with Python's package nvidia-cublas."};
};
const Library& library();  // throws Error(device) if not installed

// Alignments holds the alignment in bytes of each operand's address, by cuBLASLt's names.
struct Alignments {
  uint32_t a, b, c, d;
};
// Returns the algorithms that weft may use within `workspace` bytes, ordered by cuBLASLt's estimate
// of speed. `layouts` has the layout of a, of b, and the common layout of c and d.
std::vector<Found> candidates(Handle handle, Handle matmul, const std::array<Handle, 3>& layouts,
                              const Alignments& alignments, size_t workspace);
}  // namespace cublaslt

}  // namespace weft::cuda
