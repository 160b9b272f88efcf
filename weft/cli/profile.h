// Where the time of an update goes: its kernels, timed one by one, and summed by what one asks for.
// For `weft bench` and `weft profile`.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "weft/device/spec.h"
#include "weft/runtime/executable.h"

namespace weft::cli {

// What a kernel mostly is.
enum class Family : uint8_t {
  matmul,  // the first three are products
  conv,
  attention,
  pooling,
  gather,       // and scatter
  update,       // of parameters and of the optimiser's state
  reduce,       // and what is fused with it: softmax, norms, losses
  elementwise,  // casts and random numbers too
  movement,     // copies
  files,        // waits for transfers to and from files, and their begins
};
std::string_view name(Family family);  // "matmul"

struct KernelEvent {
  size_t plan = 0, step = 0;  // which kernel: of Profile::plans, of its steps
  int update = 0;
  double begin = 0, seconds = 0;  // since the first update began
};

// Updates that were watched. The executables must outlive it.
struct Profile {
  struct Part {
    std::string name;  // "train", "accumulate"
    const Plan* plan = nullptr;
    std::vector<Family> families = {};  // of each step
  };
  struct Update {
    double begin = 0, seconds = 0;
  };
  std::vector<Part> plans;
  std::vector<KernelEvent> events;  // in the order in which they ran
  std::vector<Update> updates;

  const Step& step(const KernelEvent& event) const {
    return plans[event.plan].plan->steps[event.step];
  }
  Family family(const KernelEvent& event) const { return plans[event.plan].families[event.step]; }
  double median_seconds() const;  // of an update
  double mean_seconds() const;
};

using NamedExecutables = std::vector<std::pair<std::string, Executable*>>;
// Calls `update` so often, and writes down what the executables run.
Profile record(const NamedExecutables& executables, int updates,
               const std::function<void()>& update);

// Kernels under one name, of an update, on average.
struct KernelTime {
  std::string name;
  double count = 0, seconds = 0, flops = 0, bytes = 0;
  Roofline best = {};  // sums
  double at_best = 0;  // seconds: the sum of what each kernel needs at best

  KernelTime& operator+=(const KernelTime& other);
};
// Slowest first.
std::vector<KernelTime> sum_by(const Profile& profile, const MachineSpec& machine,
                               const std::function<std::string(const KernelEvent&)>& name);
std::vector<KernelTime> by_kernel(const Profile& profile, const MachineSpec& machine);
std::vector<KernelTime> by_family(const Profile& profile, const MachineSpec& machine);
// In the order of the plans: "train 12 cublaslt:matmul h.0.attn.c_attn".
std::vector<KernelTime> by_step(const Profile& profile, const MachineSpec& machine);
std::vector<KernelTime> by_module(const Profile& profile, const MachineSpec& machine, int depth);
KernelTime total(const std::vector<KernelTime>& rows, std::string name);

// The `most` slowest, the sum of the others, and that of all, as a table whose first column has
// this title.
std::string to_table(const std::vector<KernelTime>& rows, const std::string& title,
                     size_t most = 12);

// What takes most of an update, how near it is to what the machine can do, and what comes next: in
// words with figures.
std::string bottleneck(const Profile& profile, const MachineSpec& machine);

std::string percent_text(double part, double whole);  // "81.2%"; "-" where there is nothing to say

// Chrome's trace format, which Perfetto reads: an event per update, and in it one per kernel, in
// the order of their begin.
std::string to_trace(const Profile& profile);

}  // namespace weft::cli
