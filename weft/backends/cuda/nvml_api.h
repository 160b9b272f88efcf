// Declares the functions and constants of NVML that weft uses
// (https://docs.nvidia.com/deploy/nvml-api). tests/cuda_headers compares both with NVIDIA's header.
#pragma once

namespace weft::cuda::nvml {

using Gpu = void*;  // nvmlDevice_t

// The structs and values are those of nvml.h.
struct Memory {  // nvmlMemory_v2_t
  unsigned version = sizeof(Memory) | 2U << 24;
  unsigned long long total = 0, reserved = 0, free = 0, used = 0;
};
struct Process {  // nvmlProcessInfo_v2_t
  unsigned pid;
  unsigned long long bytes;
  unsigned gpu_instance, compute_instance;
};
struct Utilisation {  // nvmlUtilization_t
  unsigned gpu, memory;
};
inline constexpr int insufficient_size = 7;
inline constexpr int multiprocessor_clock = 1, memory_clock = 2;
inline constexpr int die = 0;                              // temperature sensor
inline constexpr int uncorrected = 1, volatile_count = 0;  // errors since the driver was loaded
inline constexpr unsigned long long no_bytes = ~0ULL;
// These bits are causes of clock throttling that the user did not choose.
inline constexpr unsigned long long power_limit_reason = 0x04, hardware_reason = 0x08,
                                    heat_reason = 0x20, hardware_heat_reason = 0x40,
                                    power_brake_reason = 0x80;

// Functions return 0 on success.
struct Functions {
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  const char* (*error_text)(int) = nullptr;
  int (*driver_version)(char*, unsigned bytes) = nullptr;
  int (*count)(unsigned*) = nullptr;
  int (*by_index)(unsigned, Gpu*) = nullptr;
  int (*by_uuid)(const char*, Gpu*) = nullptr;
  int (*name)(Gpu, char*, unsigned bytes) = nullptr;
  int (*uuid)(Gpu, char*, unsigned bytes) = nullptr;
  int (*capability)(Gpu, int* major, int* minor) = nullptr;
  int (*memory)(Gpu, Memory*) = nullptr;
  int (*utilisation)(Gpu, Utilisation*) = nullptr;
  int (*temperature)(Gpu, int sensor, unsigned* celsius) = nullptr;
  int (*power)(Gpu, unsigned* milliwatts) = nullptr;
  int (*power_limit)(Gpu, unsigned* milliwatts) = nullptr;
  int (*energy)(Gpu, unsigned long long* millijoules) = nullptr;
  int (*clock)(Gpu, int kind, unsigned* mhz) = nullptr;
  int (*most_clock)(Gpu, int kind, unsigned* mhz) = nullptr;
  int (*processes)(Gpu, unsigned* count, Process*) = nullptr;
  int (*memory_errors)(Gpu, int kind, int since, unsigned long long*) = nullptr;
  int (*slow_reasons)(Gpu, unsigned long long*) = nullptr;
};

}  // namespace weft::cuda::nvml
