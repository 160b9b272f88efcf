// A device that runs programs in OpenCL C (OpenCL 1.2, Khronos 2012).
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "weft/backends/gpu/device.h"
#include "weft/backends/opencl/cl_ranges.h"

namespace weft::opencl {

// The device that `which` names, by its number or a part of its name, in letters of any size;
// empty: the first GPU, or else the first device of any other kind. Throws Error(device), listing
// what there is, where there is none such, or where this build has no OpenCL.
std::unique_ptr<gpu::Device> open_device(const std::string& which = "");
// Its place in devices(); nullopt where there is none such.
std::optional<size_t> number_of(const std::string& which);

// What a library needs that enqueues kernels of its own.
struct Queue {
  void* queue = nullptr;  // cl_command_queue
  const Ranges* ranges = nullptr;
  size_t base_alignment = 0;  // bytes, of a part of a buffer
};
Queue queue_of(gpu::Device& device);

struct DeviceInfo {
  std::string platform, name, version;   // "Portable Computing Language", ..., "OpenCL 3.0 ..."
  size_t memory = 0;                     // bytes
  std::string driver;                    // its version
  int compute_units = 0, clock_mhz = 0;  // the highest clock; 0: not known
  bool float64 = false, half = false;
  bool shares_memory = false;  // with the host
  bool is_processor = false;   // the host itself
  bool runs_plans = false;     // where no other is named
};
// Of all platforms.
std::vector<DeviceInfo> devices();
std::string why_no_device();  // in words, where there is none

}  // namespace weft::opencl
