// What the host is and what it can do at best: for `weft devices` and `doctor`, and for the
// roofline that `bench` holds every kernel against.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "weft/base/isa.h"

namespace weft::cpu {

struct Machine {
  std::string model;                   // "AMD EPYC 9575F"; "unknown" where the system does not say
  int cores = 1;                       // that this process may use
  size_t l1_data = 0, l2 = 0, l3 = 0;  // bytes of one cache; 0: unknown
  size_t memory = 0, available = 0;    // bytes; the limit of the control group counts
  std::vector<std::string>
      features;  // instructions of the processor that matter here: "avx2", "avx512f", "amx_bf16"
  Isa isa = Isa::baseline;  // that this process uses

  // Whether this process has instructions for products of bfloat16.
  bool has_bf16() const { return isa >= Isa::avx512_bf16; }
};
Machine this_machine();

// What its kernels are made with: {"oneDNN", "2.6.3"}, {"LLVM", "19.1.7"}.
std::vector<std::pair<std::string, std::string>> library_versions();

// Measured on thread_count() threads. Operations count a multiply-add as two.
struct Peaks {
  double f32 = 0, f64 = 0, bf16 = 0;  // GFLOP/s out of registers; bf16 without instructions: f32's
  // GB/s, reads and writes together: the better of a[i] = b[i] + s c[i], stored past the caches,
  // and a[i] *= s in place.
  double bandwidth = 0;
};
// Takes about five times `seconds`, and while it runs three arrays of the size of the last cache
// (64 MiB at least), or half of the memory that is free; then a warning says so.
Peaks measure_peaks(double seconds = 0.05);

}  // namespace weft::cpu
