// Declares the functions and constants of cuBLASLt that weft uses
// (https://docs.nvidia.com/cuda/cublas). tests/cuda_headers compares both with NVIDIA's headers.
#pragma once

#include <cstddef>
#include <cstdint>

namespace weft::cuda::cublaslt {

using Handle = void*;  // cublasLtHandle_t, descriptors, cudaStream_t

// The values are those of cublasLt.h, cublas_api.h and library_types.h.
enum DataType : int { r_32f = 0, r_64f = 1, r_16f = 2, r_16bf = 14 };
enum ComputeType : int { compute_32f = 68, compute_64f = 70, compute_tf32 = 77 };
enum MatmulAttribute : int {
  transpose_a = 3,
  transpose_b = 4,
  epilogue = 7,
  bias_pointer = 8,  // or of the column sums of b
  aux_pointer = 11,
  aux_stride = 12,
};
// These are bits of cublasLtEpilogue_t.
inline constexpr uint32_t adds_bias = 4, gelu_of_sum = 32, times_gelu_slope = 64, has_aux = 128,
                          sums_of_b = 512;
enum LayoutAttribute : int { batch_count = 5, batch_stride = 6 };
enum PreferenceAttribute : int {
  most_workspace = 1,
  reduction_schemes = 3,
  alignment_a = 5,
  alignment_b = 6,
  alignment_c = 7,
  alignment_d = 8,
};
inline constexpr uint32_t sums_in_workspace = 2;  // split-K adds parts in the type of the sums

struct Algorithm {
  uint64_t data[8];
};
struct Found {  // cublasLtMatmulHeuristicResult_t
  Algorithm algorithm;
  size_t workspace;
  int status;
  float waves;
  int reserved[4];
};

struct Functions {
  int (*create)(Handle*) = nullptr;
  int (*make_matmul)(Handle*, int compute, int scale) = nullptr;
  int (*free_matmul)(Handle) = nullptr;
  int (*set_matmul)(Handle, int attribute, const void*, size_t) = nullptr;
  int (*make_layout)(Handle*, int type, uint64_t rows, uint64_t columns, int64_t stride) = nullptr;
  int (*free_layout)(Handle) = nullptr;
  int (*set_layout)(Handle, int attribute, const void*, size_t) = nullptr;
  int (*make_preference)(Handle*) = nullptr;
  int (*free_preference)(Handle) = nullptr;
  int (*set_preference)(Handle, int attribute, const void*, size_t) = nullptr;
  int (*heuristic)(Handle, Handle matmul, Handle a, Handle b, Handle c, Handle d, Handle preference,
                   int wanted, Found*, int* found) = nullptr;
  int (*check_algorithm)(Handle, Handle matmul, Handle a, Handle b, Handle c, Handle d,
                         const Algorithm*, Found*) = nullptr;
  int (*matmul)(Handle, Handle matmul, const void* alpha, const void* a, Handle a_layout,
                const void* b, Handle b_layout, const void* beta, const void* c, Handle c_layout,
                void* d, Handle d_layout, const Algorithm*, void* workspace, size_t bytes,
                Handle stream) = nullptr;
  size_t (*version)() = nullptr;
  const char* (*status_text)(int) = nullptr;
};

}  // namespace weft::cuda::cublaslt
