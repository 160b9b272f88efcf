// Matrix products by cuBLASLt, NVIDIA's library for them (https://docs.nvidia.com/cuda/cublas):
// float16 and bfloat16 on tensor cores with float32 sums, float32, float64. It is loaded when the
// first product is compiled.
#pragma once

#include <memory>

#include "weft/backends/gpu/library.h"
#include "weft/codegen/gpu_emit.h"

namespace weft::cuda {

std::unique_ptr<gpu::Provider> cublaslt_provider();

// How a bias, operand 2 of a step, becomes one of the result's type, `at` bytes into its scratch.
loop::GpuKernel print_bias(const Step& step, size_t at);

}  // namespace weft::cuda
