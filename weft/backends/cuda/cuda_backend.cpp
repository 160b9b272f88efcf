#include "weft/backends/cuda/cuda_backend.h"

#include <vector>

#include "weft/backends/cuda/cublaslt.h"
#include "weft/backends/cuda/cuda_device.h"
#include "weft/backends/cuda/cudnn.h"
#include "weft/backends/gpu/library.h"

namespace weft {

std::unique_ptr<KernelLibrary> cuda_library(const GpuModel* model) {
  std::vector<std::unique_ptr<gpu::Provider>> providers;
  providers.push_back(cuda::cublaslt_provider());
  providers.push_back(cuda::cudnn_provider());
  return gpu::make_library("cuda", loop::GpuLanguage::cuda, cuda::open_device, std::move(providers),
                           model);
}

}  // namespace weft
