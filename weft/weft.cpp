#include <string>
#include <vector>

#include <fmt/format.h>

#include "weft/backends/cpu/cpu.h"
#include "weft/backends/cuda/cuda_backend.h"
#include "weft/backends/null/null.h"
#include "weft/backends/opencl/opencl.h"
#include "weft/backends/reference/reference.h"
#include "weft/device/catalogue.h"
#include "weft/device/registry.h"

namespace weft {
bool register_backends() {
  static const bool once = [] {
    register_library("cpu", cpu_library);
    register_library("cuda", [] { return cuda_library(); });
    register_library("opencl", opencl_library);
    register_library("reference", reference_library);
    std::vector<std::string> names = library_names();
    for (const GpuModel& gpu : gpu_models()) {
      names.push_back(fmt::format("cuda:{}", gpu.id));
      register_library(names.back(), [&gpu] { return cuda_library(&gpu); });
    }
    for (const std::string& name : names)
      register_library("null:" + name, [name] { return null_library(library(name)); });
    register_library("null", [] { return null_library(library("cpu")); });
    register_automatic([] { return cuda::has_device() ? "cuda" : "cpu"; });
    return true;
  }();
  return once;
}
}  // namespace weft
