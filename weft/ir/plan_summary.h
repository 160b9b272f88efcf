// A PlanSummary holds the memory and the time of a planned step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace weft {

struct PlanSummary {
  std::string device = {};  // the device of the plan: "NVIDIA H100 80GB HBM3"; "cpu"
  // These are bytes of that device's memory.
  size_t state_bytes = 0;  // variables, and copies of them in other types
  // Tensors from outside the step, values that derive from weights alone, and weights that kernels
  // packed.
  size_t constant_bytes = 0;
  size_t arena_bytes = 0;      // activations and scratch; the steps of a program share it
  size_t staging_bytes = 0;    // inputs on their way to a device
  size_t argument_bytes = 0;   // inputs and results in memory that the caller lends
  size_t live_peak_bytes = 0;  // least bytes of the arena: no order of allocations needs fewer
  size_t file_bytes = 0;       // offloaded to files or, for a device, to the host
  std::string largest = {};    // as largest_value() describes it (weft/runtime/summary.h)
  // These are the work and the time of one run.
  double flops = 0;
  double bytes = 0;            // least traffic of the kernels to and from memory
  int64_t launches = 0;        // kernel launches
  int64_t rematerialized = 0;  // launches among these that recompute values
  double seconds = 0;          // at best, by the peaks of the device; 0: they are not known (of a
                               // CPU until `weft devices --measure`)
  double likely_seconds = 0;   // at the rates that such kernels usually reach; 0: not known

  size_t memory_bytes() const {
    return state_bytes + constant_bytes + arena_bytes + staging_bytes + argument_bytes;
  }
  double expected_seconds() const { return likely_seconds > 0 ? likely_seconds : seconds; }
};

}  // namespace weft
