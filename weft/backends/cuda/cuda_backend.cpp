#include "weft/backends/cuda/cuda_backend.h"

#include <charconv>
#include <string>
#include <utility>
#include <vector>

#include "weft/backends/cuda/cublaslt.h"
#include "weft/backends/cuda/cuda_device.h"
#include "weft/backends/cuda/cudnn.h"
#include "weft/backends/cuda/cudnn_graph.h"
#include "weft/backends/gpu/library.h"
#include "weft/base/error.h"
#include "weft/device/catalogue.h"

namespace weft {
namespace {
constexpr int first_with_engines = 80;  // cuDNN has engines for attention and bfloat16

// Returns whether to use cuDNN on the plan's GPU model, else on the present GPU. Without a usable
// GPU the answer is yes, so that plans are the same as on a machine with a GPU.
bool uses_cudnn(int number, const DeviceModel* model) {
  if (model != nullptr && model->capability < first_with_engines) return false;
  if (!cuda::why_unusable(number).empty()) return true;
  return cuda::compute_capability(number) >= first_with_engines && cuda::cudnn::is_installed();
}

int number_of(const std::string& which) {
  if (which.empty()) return 0;
  int number = -1;
  const char* end = which.data() + which.size();
  const bool is_number = std::from_chars(which.data(), end, number).ptr == end && number >= 0;
  WEFT_CHECK(is_number, "[device] no GPU '{}' in the catalogue.", which);
  return number;
}
}  // namespace

std::unique_ptr<KernelLibrary> cuda_library(const std::string& which) {
  const DeviceModel* model = find_gpu(which);
  const int number = model != nullptr ? 0 : number_of(which);
  std::vector<std::unique_ptr<gpu::Provider>> providers;
  providers.push_back(cuda::cublaslt_provider());
  if (uses_cudnn(number, model)) providers.push_back(cuda::cudnn_provider());
  return gpu::make_library(
      "cuda", loop::GpuLanguage::cuda, [number] { return cuda::open_device(number); },
      std::move(providers), model);
}

std::string cuda_same_as(const std::string& which) {
  const DeviceModel* model = find_gpu(which);
  return model != nullptr ? std::string(model->id) : std::to_string(number_of(which));
}

}  // namespace weft
