// Opens an NVIDIA GPU. NVRTC compiles kernels in CUDA C, and their cubins are cached on disk. All
// work runs in one stream, except copies from and to the host, which have a stream for each
// direction.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "weft/backends/gpu/device.h"

namespace weft::cuda {

// Opens a GPU by the driver's order (CUDA_VISIBLE_DEVICES). Throws Error(device) if there is no
// driver, no such GPU, no NVRTC or no cuBLASLt.
std::unique_ptr<gpu::Device> open_device(int number = 0);
// Returns the message that open_device() would throw; "": the GPU is usable.
std::string why_unusable(int number = 0);

// Returns the compute capability of a GPU, 90 for 9.0; 0 if there is none.
int compute_capability(int number = 0);

// Returns the UUIDs of all visible GPUs in the driver's order, as NVML writes them; may be empty.
std::vector<std::string> uuids();

// A Stream is the context and stream that NVIDIA's libraries need. stream_of() takes a device of
// open_device() and makes its context current on the calling thread.
struct Stream {
  void* context = nullptr;    // CUcontext
  void* stream = nullptr;     // CUstream
  void make_current() const;  // binds the context to the calling thread
};
Stream stream_of(gpu::Device& device);

}  // namespace weft::cuda
