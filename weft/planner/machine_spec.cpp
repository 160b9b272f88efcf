#include "weft/planner/machine_spec.h"

#include <algorithm>

#include "weft/backends/cpu/peaks.h"
#include "weft/backends/opencl/cl_device.h"
#include "weft/device/registry.h"

namespace weft {
namespace {
bool is_processor(const std::string& opencl_device) {
  return std::ranges::any_of(opencl::devices(), [&](const opencl::DeviceInfo& device) {
    return device.name == opencl_device && device.is_processor;
  });
}
}  // namespace

MachineSpec machine_spec_by(const std::string& device,
                            const std::function<cpu::Peaks()>& host_peaks) {
  const KernelLibrary& backend = library(device);
  MachineSpec spec = backend.meters().spec();
  if (backend.on_host() || (!spec.known() && is_processor(spec.name))) {
    const cpu::Peaks peaks = host_peaks();
    spec.flops_per_s = 1e9 * peaks.f32;
    spec.bytes_per_s = 1e9 * peaks.bandwidth;
    spec.f64_flops_per_s = 1e9 * peaks.f64;
    if (backend.on_host()) spec.bf16_flops_per_s = 1e9 * peaks.bf16;
    spec.basis = "peaks measured on this machine";
  }
  return spec;
}

MachineSpec known_machine_spec(const std::string& device) {
  return machine_spec_by(device,
                         [] { return cpu::cached_peaks().value_or(cpu::CachedPeaks()).peaks; });
}
}  // namespace weft
