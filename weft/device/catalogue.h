// Machines by name: GPUs, what NVIDIA says that they can do and what was measured on those that
// were tried; and the processor.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "weft/device/spec.h"

namespace weft {

// Dense peaks in TFLOP/s (no sparsity; sums in float32); 0: the GPU has no such cores.
struct GpuModel {
  std::string_view id;    // as in --device cuda:h200
  std::string_view name;  // that its driver gives it
  double f32 = 0, f64 = 0;
  double tf32 = 0, half = 0;   // tensor cores; half: float16, and bfloat16 from capability 8.0 on
  int capability = 0;          // 90: 9.0
  double memory_gib = 0;       // that CUDA shows of it
  double gbytes_per_s = 0;     // memory
  int watts = 0;               // at most
  double link_gbytes = 0;      // per second, to or from the host's memory
  int processors = 0;          // streaming multiprocessors; 0: unknown
  int cache_mib = 0;           // of the second level; 0: unknown
  double measured_half = 0;    // of a large product of bfloat16; 0: not measured
  double measured_gbytes = 0;  // per second, of a large copy; 0: not measured
};

std::span<const GpuModel> gpu_models();
// By id, whatever its capitals, or by the name that a driver gives it; null: not in the catalogue.
const GpuModel* find_gpu(std::string_view id);
const GpuModel* find_gpu_of_driver(std::string_view name);

// Times go by the data sheet, for each alike; what was measured stands beside it.
MachineSpec spec_of(const GpuModel& gpu);

// Any processor: operations to bytes as they have them, roughly, so that plans for the host are the
// same on each. What one has at best has no data sheet, and is measured for times.
const MachineSpec& processor_spec();

}  // namespace weft
