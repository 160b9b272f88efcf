#include "weft/core.h"

#include <string>

#include "weft/backends/cpu/cpu.h"
#include "weft/backends/cuda/cuda_backend.h"
#include "weft/backends/null/null.h"
#include "weft/backends/opencl/opencl.h"
#include "weft/backends/reference/reference.h"
#include "weft/comm/join.h"
#include "weft/device/registry.h"
#include "weft/device/world.h"
#include "weft/planner/machine_spec.h"

namespace weft {
bool register_backends() {
  static const bool once = [] {
    register_library("cpu", cpu_library);
    register_family("cuda", {cuda_library, cuda_same_as, cuda::device_count});
    register_family("opencl", {opencl_library, opencl_same_as, opencl_device_count});
    register_library("reference", reference_library);
    register_family("null", {[](const std::string& of) {
                      return null_library(library(of.empty() ? "cpu" : of));
                    }});
    register_automatic([] { return cuda::has_device() ? "cuda" : "cpu"; });
    register_known_specs(known_machine_spec);
    register_join([] { comm::join(); });
    return true;
  }();
  return once;
}
}  // namespace weft
