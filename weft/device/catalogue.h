// Declares the catalogue of GPUs, with peaks by NVIDIA data sheets and by measurement, and the CPU.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "weft/device/spec.h"

namespace weft {

// Peaks are dense TFLOP/s (no sparsity; float32 accumulation); 0: the GPU has no such units.
struct GpuModel {
  std::string_view id;    // as in --device cuda:h200
  std::string_view name;  // as reported by the driver
  double f32 = 0, f64 = 0;
  double tf32 = 0, half = 0;   // tensor cores; half: float16, and bfloat16 from capability 8.0 on
  int capability = 0;          // 90: 9.0
  double memory_gib = 0;       // as CUDA reports it
  double gbytes_per_s = 0;     // memory
  int watts = 0;               // power limit
  double link_gbytes = 0;      // per second, to or from the host's memory
  int processors = 0;          // streaming multiprocessors; 0: unknown
  int cache_mib = 0;           // L2; 0: unknown
  double measured_half = 0;    // TFLOP/s of a large bfloat16 matrix product; 0: not measured
  double measured_gbytes = 0;  // per second, of a large copy; 0: not measured
};

std::span<const GpuModel> gpu_models();
// Find a GPU by id, ignoring case, or by its driver's name; null: not in the catalogue.
const GpuModel* find_gpu(std::string_view id);
const GpuModel* find_gpu_of_driver(std::string_view name);
// Returns what to say of a name that is no machine: the nearest that is, or where they are listed.
std::string machine_hint(std::string_view name);

// Planned times use the data sheet's peaks; the spec has the measured peaks beside them.
MachineSpec spec_of(const GpuModel& gpu);

// Returns a rough ratio of arithmetic to bandwidth for any CPU, so that plans for the host do not
// depend on the machine. Times use measured peaks, as CPUs have no data sheets with peaks.
const MachineSpec& processor_spec();

}  // namespace weft
