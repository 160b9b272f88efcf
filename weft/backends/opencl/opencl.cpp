#include "weft/backends/opencl/opencl.h"

#include <optional>
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
      "opencl", loop::GpuLanguage::opencl, [which] { return opencl::open_device(which); },
      std::move(providers));
}

std::string opencl_same_as(const std::string& which) {
  const std::optional<size_t> number = opencl::number_of(which);
  return number ? std::to_string(*number) : which;
}

int opencl_device_count() { return static_cast<int>(opencl::devices().size()); }

}  // namespace weft
