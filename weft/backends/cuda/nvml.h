// NVML, NVIDIA's library for the management of GPUs (https://docs.nvidia.com/deploy/nvml-api): what
// they are, how they do, what they take. It comes with the driver.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "weft/base/device_memory.h"
#include "weft/device/meters.h"

namespace weft::cuda {

struct GpuProcess {
  unsigned pid = 0;
  std::optional<size_t> bytes = {};  // of the GPU's memory
};

// Nullopt, or 0 where nothing is said of it: this GPU does not tell.
struct GpuState {
  std::string name, uuid, driver;  // "NVIDIA H200", "GPU-...", "580.95.05"
  int capability = 0;              // 90: 9.0
  MemoryUse memory;
  struct Clock {
    unsigned now = 0, most = 0;  // MHz
  };
  Clock multiprocessors, memory_clock;
  std::optional<unsigned> busy_percent = {};
  std::optional<double> watt_limit = {};
  std::optional<uint64_t> uncorrected_errors = {};  // of its memory, since the driver was loaded
  std::vector<GpuProcess> processes = {};           // that compute on it
  DeviceMeters meters = {};
};

class Nvml {
 public:
  // Throws Error(device) where it is not here, or finds no driver.
  Nvml();
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  // Every GPU of the machine, whatever CUDA_VISIBLE_DEVICES says.
  std::vector<GpuState> gpus() const;
  // Empty for one that is unknown or lost.
  DeviceMeters meters(const std::string& uuid) const;

 private:
  struct Library;
  std::unique_ptr<Library> library_;
};

}  // namespace weft::cuda
