#include "weft/backends/opencl/opencl.h"

#include <utility>
#include <vector>

#include "weft/backends/gpu/library.h"
#include "weft/backends/opencl/cl_device.h"
#include "weft/backends/opencl/clblast.h"

namespace weft {

std::unique_ptr<KernelLibrary> opencl_library(const std::string& which) {
  std::vector<std::unique_ptr<gpu::Provider>> providers;
  if (auto products = opencl::clblast_provider()) providers.push_back(std::move(products));
  return gpu::make_library(
      "opencl", loop::GpuLanguage::opencl,
      [which] { return which.empty() ? opencl::open_device() : opencl::open_device_called(which); },
      std::move(providers));
}

}  // namespace weft
