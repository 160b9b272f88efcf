#include "weft/backends/cuda/cuda_backend.h"

#include <vector>

#include "weft/backends/cuda/cublaslt.h"
#include "weft/backends/cuda/cuda_device.h"
#include "weft/backends/cuda/cudnn.h"
#include "weft/backends/cuda/cudnn_graph.h"
#include "weft/backends/gpu/library.h"

namespace weft {
namespace {
constexpr int first_with_engines = 80;  // of cuDNN's, for attention and bfloat16

// For the GPU of the plan, else the one that is here; where there is none, as it would be.
bool uses_cudnn(const GpuModel* model) {
  const int here = cuda::compute_capability();
  if (model != nullptr && model->capability < first_with_engines) return false;
  return here == 0 || (here >= first_with_engines && cuda::cudnn::is_installed());
}
}  // namespace

std::unique_ptr<KernelLibrary> cuda_library(const GpuModel* model) {
  std::vector<std::unique_ptr<gpu::Provider>> providers;
  providers.push_back(cuda::cublaslt_provider());
  if (uses_cudnn(model)) providers.push_back(cuda::cudnn_provider());
  return gpu::make_library("cuda", loop::GpuLanguage::cuda, cuda::open_device, std::move(providers),
                           model);
}

}  // namespace weft
