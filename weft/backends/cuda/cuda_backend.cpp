#include "weft/backends/cuda/cuda_backend.h"

#include "weft/backends/cuda/cuda_device.h"
#include "weft/backends/gpu/library.h"

namespace weft {

std::unique_ptr<KernelLibrary> cuda_library() {
  return gpu::make_library("cuda", loop::GpuLanguage::cuda, cuda::open_device);
}

}  // namespace weft
