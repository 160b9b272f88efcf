// Measures the time of an update by kernel for `weft bench` and `weft profile`: kernels are timed
// one by one and summed by several keys.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "weft/device/spec.h"
#include "weft/runtime/executable.h"

namespace weft::cli {

// A Family is the dominant kind of work of a kernel.
enum class Family : uint8_t {
  matmul,  // the first three are products
  conv,
  attention,
  pooling,
  gather,       // includes scatter
  update,       // updates of parameters and optimizer state
  reduce,       // with fused work: softmax, norms, losses
  elementwise,  // includes casts and random numbers
  movement,     // copies
  files,        // transfers to and from files: starts and waits
};
std::string_view name(Family family);  // "matmul"

struct KernelEvent {
  size_t plan = 0, launch = 0;  // indexes Profile::plans and the launches of that plan
  int update = 0;
  double begin = 0, seconds = 0;  // relative to the start of the first update
};

// A Profile is a record of updates. The executables must outlive it.
struct Profile {
  struct Part {
    std::string name;  // "train", "accumulate"
    const Plan* plan = nullptr;
    std::vector<Family> families = {};  // one for each launch
    size_t updates = 0;                 // that ran it
  };
  struct Update {
    double begin = 0, seconds = 0;
  };
  std::vector<Part> plans;
  std::vector<KernelEvent> events;  // in execution order
  std::vector<Update> updates;

  const Launch& launch(const KernelEvent& event) const {
    return plans[event.plan].plan->launches[event.launch];
  }
  Family family(const KernelEvent& event) const { return plans[event.plan].families[event.launch]; }
  double median_seconds() const;  // median over the updates
  double mean_seconds() const;
};

using NamedExecutables = std::vector<std::pair<std::string, Executable*>>;
// Calls `update` `updates` times and records the launches of the executables.
Profile record(const NamedExecutables& executables, int updates,
               const std::function<void()>& update);

// Joins profiles of different executables, one after the other, for a trace or a picture of all.
Profile joined(const std::vector<Profile>& profiles);

// KernelTime sums the kernels under one name, averaged over the updates that ran their plans.
struct KernelTime {
  std::string name;
  double count = 0, seconds = 0, flops = 0, bytes = 0;
  Roofline best = {};  // sums
  double at_best = 0;  // seconds: the sum of the roofline times

  KernelTime& operator+=(const KernelTime& other);
};
// Sum the events by name, slowest first.
std::vector<KernelTime> sum_by(const Profile& profile, const MachineSpec& machine,
                               const std::function<std::string(const KernelEvent&)>& name);
std::vector<KernelTime> by_kernel(const Profile& profile, const MachineSpec& machine);
std::vector<KernelTime> by_family(const Profile& profile, const MachineSpec& machine);
// Returns one row per launch, in the order of the plans: "train 12 cublaslt:matmul
// h.0.attn.c_attn".
std::vector<KernelTime> by_launch(const Profile& profile, const MachineSpec& machine);
std::vector<KernelTime> by_module(const Profile& profile, const MachineSpec& machine, int depth);
KernelTime total(const std::vector<KernelTime>& rows, std::string name);

// Returns a table of the `most` slowest rows, the sum of the others and the total; `title` heads
// its first column.
std::string to_table(const std::vector<KernelTime>& rows, const std::string& title,
                     size_t most = 12);

// Describes, with figures, which part takes most of an update, how close it is to the peak of the
// machine, and which part comes next.
std::string bottleneck(const Profile& profile, const MachineSpec& machine);

std::string percent_text(double part, double whole);  // "81.2%"; "-" where undefined

// Returns Chrome's trace format, which Perfetto reads: an event per update, containing one per
// kernel, in the order of their start.
std::string to_trace(const Profile& profile);

}  // namespace weft::cli
