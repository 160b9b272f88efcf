#include "weft/tensor/device.h"

#include <utility>

#include <fmt/format.h>

#include "weft/device/catalogue.h"
#include "weft/device/registry.h"

namespace weft {
Device::Device(std::string name) : name_(std::move(name)) {
  if (const DeviceModel* gpu = find_gpu(name_)) name_ = fmt::format("cuda:{}", gpu->id);
  check_library_name(name_);
}

std::string Device::model() const {
  const MachineSpec spec = known_spec(name_);
  return spec.name.empty() ? library(name_).name() : spec.name;
}

bool Device::is_present() const {
  const KernelLibrary& device = library(name_);
  if (device.only_plans()) return false;
  try {
    (void)device.memory();
    return true;
  } catch (const Error& absent) {
    if (absent.kind() != ErrorKind::device) throw;
    return false;
  }
}

size_t Device::memory_bytes() const {
  return is_present() ? library(name_).memory().use().total : known_spec(name_).memory_bytes;
}

std::vector<Device> devices() {
  std::vector<Device> all;
  for (const std::string& name : present_libraries())
    if (Device device = name; device.is_present()) all.push_back(std::move(device));
  return all;
}

}  // namespace weft

fmt::format_context::iterator fmt::formatter<weft::Device>::format(
    const weft::Device& device, fmt::format_context& context) const {
  return fmt::formatter<fmt::string_view>::format(device.name(), context);
}
