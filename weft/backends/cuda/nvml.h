// Reads state and power of GPUs by NVML (https://docs.nvidia.com/deploy/nvml-api), a part of the
// driver.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "weft/base/memory/device_memory.h"
#include "weft/device/meters.h"

namespace weft::cuda {

struct GpuProcess {
  unsigned pid = 0;
  std::optional<size_t> bytes = {};  // GPU memory
};

// GpuState is the state of a GPU; a member is nullopt (or 0) where the GPU does not report it.
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
  std::optional<uint64_t> uncorrected_errors = {};  // ECC errors since the driver was loaded
  std::vector<GpuProcess> processes = {};           // compute processes
  DeviceMeters meters = {};
};

class Nvml {
 public:
  // Throws Error(device) if NVML is not installed or finds no driver.
  Nvml();
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  // Returns every GPU of the machine, regardless of CUDA_VISIBLE_DEVICES.
  std::vector<GpuState> gpus() const;
  // Returns empty meters for an unknown or lost GPU.
  DeviceMeters meters(const std::string& uuid) const;

 private:
  struct Library;
  std::unique_ptr<Library> library_;
};

}  // namespace weft::cuda
