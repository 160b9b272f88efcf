// Declares devices, which run the kernels of steps, or for which steps can be planned.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/core.h>

namespace weft {

class KernelLibrary;

// A Device is a CPU or GPU of this machine ("cpu", "cuda:1", "opencl:0"; "cuda" is the first
// GPU, "auto" the best device that is present), or a GPU of the catalogue that is somewhere else
// ("h100"), for which steps can be planned. StepOptions::device takes a Device or its name.
class Device {
 public:
  // Throws Error(usage), which lists the known names, for an unknown one.
  Device(std::string name);  // NOLINT(google-explicit-constructor): a name stands for its device
  Device(const char* name) : Device(std::string(name)) {}

  const std::string& name() const { return name_; }  // as StepOptions::device takes it
  operator const std::string&() const { return name_; }
  // Returns the model: "NVIDIA H100 80GB HBM3"; "cpu" for the CPU.
  std::string model() const;
  // Returns whether steps can run on the device now; opens it.
  bool is_present() const;
  // Returns the bytes of the device's memory, which plans may use; of an absent device, those of
  // its data sheet. 0: not known.
  size_t memory_bytes() const;
  friend bool operator==(const Device&, const Device&) = default;

 private:
  std::string name_;
};

// Returns the devices that can run steps here: "cpu", then each GPU and OpenCL device, and
// "reference", which computes in plain loops and is slow. Opens each of them; GPUs that are too old
// for weft or for the installed libraries are not listed.
std::vector<Device> devices();

// While a DeviceScope lives, eval() and all functions that read values compute on its device;
// without a scope, on the CPU. Results come to the host. Scopes nest; each belongs to its thread.
// Throws Error(device) where the device is absent.
class DeviceScope {
 public:
  explicit DeviceScope(const Device& device);
  ~DeviceScope();
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  const KernelLibrary* saved_;
};

}  // namespace weft

// A device formats as its name.
template <>
struct fmt::formatter<weft::Device> : fmt::formatter<fmt::string_view> {
  fmt::format_context::iterator format(const weft::Device& device,
                                       fmt::format_context& context) const;
};
