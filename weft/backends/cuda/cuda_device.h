// An NVIDIA GPU: kernels in CUDA C through NVRTC, whose machine code is kept on disk, and one
// stream for everything.
#pragma once

#include <memory>
#include <string>

#include "weft/backends/gpu/device.h"

namespace weft::cuda {

// The first GPU that the driver shows (CUDA_VISIBLE_DEVICES). Throws Error(device) where there is
// no driver, no GPU or no compiler.
std::unique_ptr<gpu::Device> open_device();

// Of the first GPU, 90: 9.0; 0 where there is none.
int compute_capability();

// Of a device that open_device() made: what libraries of NVIDIA are handed.
struct Stream {
  void* context = nullptr;  // CUcontext, current on the calling thread from then on
  void* stream = nullptr;   // CUstream
};
Stream stream_of(gpu::Device& device);

}  // namespace weft::cuda
