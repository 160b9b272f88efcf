// Describes the peaks of a machine, the reference for planned times, mfu and the roofline of each
// kernel.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>

#include "weft/ir/plan.h"

namespace weft {

struct Link;

// Sustained holds the fractions of the peaks that each kind of kernel sustains.
struct Sustained {
  double products = 1;   // for deep matrix products
  double shallow = 0;    // depth that gives half of `products` in 16 bits; slower types need less
  double unaligned = 1;  // factor for tensor cores on rows that are no multiple of 16 bytes
  double attention = 1;  // at a head width of 64; grows with the width up to `products`
  double rows = 1;       // share of the bandwidth, for kernels that reduce or gather
  double streams = 1;    // share of the bandwidth, for other kernels
  double launch = 0;     // seconds between two kernels
};

struct MachineSpec {
  double flops_per_s = 0;  // peak of float32; a multiply-add counts as two. 0: unknown
  double bytes_per_s = 0;  // to and from memory. 0: unknown
  // These are the peaks of other types; 0: as float32.
  double f64_flops_per_s = 0, bf16_flops_per_s = 0, f16_flops_per_s = 0, tf32_flops_per_s = 0;
  std::string name = {};    // name of a device; "": the host
  std::string basis = {};   // source of the peaks: "the peaks of its data sheet"
  size_t memory_bytes = 0;  // usable device memory; 0: unknown, or the host's
  // This is the bandwidth of offload, to files or from a device to the host's memory. 0: unknown.
  double file_bytes_per_s = 0;
  bool both_ways = false;  // offload reaches file_bytes_per_s in both directions at once
  std::optional<Sustained> sustained = {};
  // These are the streaming multiprocessors of a GPU, which share the L2 cache; 0: unknown.
  int processors = 0;
  double second_level_cache = 0;  // bytes
  const Link* link = nullptr;  // between ranks (device/link.h); null: their exchanges take no time
  // These are measured peaks of 16-bit products and of copies; 0: not measured. Planned times use
  // the data sheet's peaks above, so that devices compare; as_measured() substitutes these.
  double measured_half_flops_per_s = 0, measured_bytes_per_s = 0;

  bool known() const { return flops_per_s > 0 && bytes_per_s > 0; }
  double flops_per_s_in(DType dtype, bool tf32 = false) const;  // tf32: for float32 rounded to TF32
  // Returns the time of a byte to or from the offload target in units of its time in memory.
  double file_slowdown() const;
  bool was_measured() const { return measured_half_flops_per_s > 0 || measured_bytes_per_s > 0; }
};

// Returns the machine with measured peaks in place of the data sheet's, where they are known.
MachineSpec as_measured(MachineSpec machine);

// Returns the type of a launch's arithmetic: the type of a product's factors; without a product,
// float64 if a value is float64, else float32.
DType computed_in(const Launch& launch);

double flops_per_s_of(const Launch& launch, const MachineSpec& machine);

// A Roofline has the least seconds of a launch for arithmetic and for memory; their maximum bounds
// its time (Williams et al. 2009).
struct Roofline {
  double compute = 0, memory = 0;
  double seconds() const { return std::max(compute, memory); }
  bool compute_bound() const { return compute > memory; }
};
Roofline roofline(const Launch& launch, const MachineSpec& machine);  // zeros on an unknown machine

// Returns a launch's likely seconds by the sustained fractions, or the roofline without them.
double likely_seconds(const Launch& launch, const MachineSpec& machine);

}  // namespace weft
