// Describes the host and measures its peaks, for `weft devices` and `doctor`, and for the roofline
// that `bench` compares every kernel with.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "weft/base/host/isa.h"

namespace weft::cpu {

struct Machine {
  std::string model;                   // "AMD EPYC 9575F"; "unknown" where the system does not say
  int cores = 1;                       // available to this process
  size_t l1_data = 0, l2 = 0, l3 = 0;  // bytes of one cache; 0: unknown
  size_t memory = 0, available = 0;    // bytes, within the limit of the control group
  std::vector<std::string>
      features;  // instructions of the CPU that matter here: "avx2", "avx512f", "amx_bf16"
  Isa isa = Isa::baseline;  // used by this process

  // Returns whether this process has instructions for products of bfloat16.
  bool has_bf16() const { return isa >= Isa::avx512_bf16; }
};
Machine this_machine();

// Returns the libraries behind the kernels: {"oneDNN", "2.6.3"}, {"LLVM", "19.1.7"}.
std::vector<std::pair<std::string, std::string>> library_versions();

// Peaks are measured on thread_count() threads. Operations count a multiply-add as two.
struct Peaks {
  double f32 = 0, f64 = 0, bf16 = 0;  // GFLOP/s in registers; bf16: f32's without instructions
  // Bandwidth in GB/s counts reads and writes: the better of a[i] = b[i] + s c[i] with non-temporal
  // stores and a[i] *= s in place.
  double bandwidth = 0;
};
// Takes about five times `seconds`, and meanwhile three arrays of the size of the last-level cache
// (64 MiB at least), or half of the available memory if that is less; a warning says if they are
// smaller than the cache.
Peaks measure_peaks(double seconds = 0.05);

}  // namespace weft::cpu
