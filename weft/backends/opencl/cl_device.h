// Opens OpenCL devices (OpenCL 1.2, Khronos 2012).
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "weft/backends/gpu/device.h"
#include "weft/backends/opencl/cl_ranges.h"

namespace weft::opencl {

// Opens the device that `which` names by its number or a case-insensitive part of its name; empty:
// the first GPU, or else the first device. Throws Error(device), which lists the devices, where
// there is no such device, or where this build has no OpenCL.
std::unique_ptr<gpu::Device> open_device(const std::string& which = "");
// Returns the index in devices(); nullopt where there is no such device.
std::optional<size_t> number_of(const std::string& which);

// A Queue holds what a library needs to enqueue kernels of its own.
struct Queue {
  void* queue = nullptr;  // cl_command_queue
  const Ranges* ranges = nullptr;
  size_t base_alignment = 0;  // bytes; alignment of sub-buffers
};
Queue queue_of(gpu::Device& device);

struct DeviceInfo {
  std::string platform, name, version;   // "Portable Computing Language", ..., "OpenCL 3.0 ..."
  size_t memory = 0;                     // bytes
  std::string driver;                    // driver version
  int compute_units = 0, clock_mhz = 0;  // the highest clock; 0: unknown
  bool float64 = false, half = false;
  bool shares_memory = false;  // memory shared with the host
  bool is_processor = false;   // the host itself
  bool runs_plans = false;     // the default device
};
// Returns the devices of all platforms.
std::vector<DeviceInfo> devices();
std::string why_no_device();  // the reason, if devices() is empty

}  // namespace weft::opencl
