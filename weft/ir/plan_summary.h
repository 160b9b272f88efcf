// What a run of a planned step takes, in numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace weft {

struct PlanSummary {
  std::string device = {};  // that it is planned for: "NVIDIA H100 80GB HBM3"; "cpu"
  // Bytes of that device's memory.
  size_t state_bytes = 0;      // variables, and copies of them, that lie there
  size_t constant_bytes = 0;   // tensors of outside that the step reads
  size_t arena_bytes = 0;      // all else; the compiled steps of a program share one arena
  size_t staging_bytes = 0;    // inputs on their way to a device
  size_t live_peak_bytes = 0;  // of the arena: no order of allocations needs fewer
  size_t file_bytes = 0;       // elsewhere: in files or, for a device, with the host
  // Of one run.
  double flops = 0;
  double bytes = 0;           // that kernels move to and from memory, at the least
  int64_t launches = 0;       // of kernels
  int64_t again = 0;          // of these, kernels that run again instead of keeping their results
  double seconds = 0;         // at best, by the peaks of the device; 0: they are not known (of a
                              // processor until `weft devices --measure`)
  double likely_seconds = 0;  // as such kernels usually run; 0: not known better

  size_t memory_bytes() const { return state_bytes + constant_bytes + arena_bytes + staging_bytes; }
  double expected_seconds() const { return likely_seconds > 0 ? likely_seconds : seconds; }
};

}  // namespace weft
