// An NVIDIA GPU: kernels in CUDA C through NVRTC, whose machine code is kept on disk; one
// stream for all but the copies from and to the host that are done beside it, of which each
// direction has its own.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "weft/backends/gpu/device.h"

namespace weft::cuda {

// One of the GPUs that the driver shows (CUDA_VISIBLE_DEVICES), in its order. Throws Error(device)
// where there is no driver, no such GPU, no compiler (NVRTC) or no cuBLASLt.
std::unique_ptr<gpu::Device> open_device(int number = 0);
// What open_device() would throw; "": it can be used.
std::string why_unusable(int number = 0);

// Of that GPU, 90: 9.0; 0 where there is none.
int compute_capability(int number = 0);

// Of every GPU that the driver shows, in its order, as NVML writes them; empty without a driver.
std::vector<std::string> uuids();

// Of a device that open_device() made, and current on the calling thread from then on: what
// libraries of NVIDIA are handed.
struct Stream {
  void* context = nullptr;    // CUcontext
  void* stream = nullptr;     // CUstream
  void make_current() const;  // the context, on the calling thread
};
Stream stream_of(gpu::Device& device);

}  // namespace weft::cuda
