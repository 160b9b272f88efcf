// What a machine can do at best: what planned times, shares of the peak (mfu) and the roofline of
// every kernel are measured against.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>

#include "weft/ir/plan.h"

namespace weft {

// What kernels of a kind keep up of the peaks, as parts of them: what a likely time rests on.
struct Sustained {
  double products = 1;   // of many products for each sum
  double shallow = 0;    // at so many the part is half of that in 16 bits; slower types need fewer
  double unaligned = 1;  // of that, where tensor cores meet rows of no whole multiple of 16 bytes
  double attention = 1;  // at 64 elements a head; more have more, up to what products have
  double rows = 1;       // of the bandwidth, where a kernel reduces or gathers
  double streams = 1;    // where it does neither
  double launch = 0;     // seconds between one kernel and the next
};

struct MachineSpec {
  double flops_per_s = 0;  // of float32; a multiply-add counts as two. 0: unknown
  double bytes_per_s = 0;  // to and from memory. 0: unknown
  // 0: as float32's.
  double f64_flops_per_s = 0, bf16_flops_per_s = 0, f16_flops_per_s = 0, tf32_flops_per_s = 0;
  std::string name = {};    // of a device; "": the host
  std::string basis = {};   // where the peaks come from: "the peaks of its data sheet"
  size_t memory_bytes = 0;  // that a run can have of a device's; 0: unknown, or the host's
  // To or from where offload puts things: files, or the host's memory for a device. 0: unknown.
  double file_bytes_per_s = 0;
  bool both_ways = false;  // at that speed in each direction, at once
  std::optional<Sustained> sustained = {};
  // Of a GPU, whose streaming multiprocessors share the cache of the second level. 0: unknown
  int processors = 0;
  double second_level_cache = 0;  // bytes
  // What such a device was measured at, in products of 16 bits and in copies; 0: it was not. Times
  // go by the peaks above, so that devices compare; as_measured() has those of these.
  double measured_half_flops_per_s = 0, measured_bytes_per_s = 0;

  bool known() const { return flops_per_s > 0 && bytes_per_s > 0; }
  double flops_per_s_in(DType dtype, bool tf32 = false) const;  // tf32: of float32, so rounded
  // A byte to or from there takes as long as so many in memory.
  double file_slowdown() const;
  bool was_measured() const { return measured_half_flops_per_s > 0 || measured_bytes_per_s > 0; }
};

// With measured peaks in the place of those of the data sheet, as far as they are known.
MachineSpec as_measured(MachineSpec machine);

// What the operations of a step are done in: a product in the type of its operands, all else in
// float32, or in float64 where a value is of that type.
DType computed_in(const Step& step);

double flops_per_s_of(const Step& step, const MachineSpec& machine);

// Seconds that a step needs at best: it takes the longer of the two (Williams et al. 2009).
struct Roofline {
  double compute = 0, memory = 0;
  double seconds() const { return std::max(compute, memory); }
  bool compute_bound() const { return compute > memory; }
};
Roofline roofline(const Step& step, const MachineSpec& machine);  // zeros on an unknown machine

// Seconds that a step is likely to take, by what such kernels sustain; as the roofline where that
// is not known.
double likely_seconds(const Step& step, const MachineSpec& machine);

}  // namespace weft
