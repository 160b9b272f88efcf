// A PlanAnswer says what planned steps take: the bytes and the seconds of a question's answer, by
// what they are for.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "weft/ir/plan.h"
#include "weft/planner/question.h"

namespace weft {

struct PlannedStep {
  std::string name;  // "train"
  std::shared_ptr<const Plan> plan;
  int64_t per_update = 1;                   // as in CapturedStep
  std::shared_ptr<const Graph> graph = {};  // BoundPlan::graph; null: the planner did not plan it
};

// A Bill is the bytes of memory that state of one purpose takes.
struct Bill {
  Purpose purpose;
  int64_t bytes = 0;  // negative: bytes of the bills before it that are elsewhere
  bool is_shown() const { return bytes != 0 || purpose.is_always_shown; }
};

// A TimeBill is the planned seconds of an update that one kind of work takes.
struct TimeBill {
  // `transfers` are to and from files, as far as kernels wait for them.
  enum class Work : uint8_t { arithmetic, memory_traffic, transfers };
  Work work;
  bool is_again = false;  // rematerialization
  double seconds = 0;
};

// An Exchange is the collectives of one operation in an update.
struct Exchange {
  std::string op;  // "all_reduce"
  int64_t count = 0;
  double bytes_sent = 0;  // by each rank
};

// A Gather is what ranks send each other, in an update, for an operation of a module that needs all
// of a value of which each of them has a part.
struct Gather {
  std::string op, module;
  double bytes_sent = 0;  // by each rank
  double seconds = 0;     // planned
};

// A Refusal says why steps do not fit within the question's limit of memory.
struct Refusal {
  std::string message;     // of the step that needs most: "train: ..."
  size_t least_bytes = 0;  // of state and arena, which suffice for the steps; 0: unknown
};

// A refused answer has the plans of the steps that fit, and no bytes or seconds.
struct PlanAnswer {
  std::vector<PlannedStep> plans;
  std::optional<Refusal> refusal = {};  // nullopt: every step fits
  // `state` is the question's bills, and last the copies of weights in the narrower type of
  // products.
  std::vector<Bill> state = {};
  size_t offloaded_bytes = 0;         // bytes of `state` that are in files instead of memory
  size_t file_bytes = 0;              // in files: offloaded state, and values of the steps
  double file_traffic = 0;            // bytes to and from files per update
  size_t arena_bytes = 0;             // bytes of the largest step's arena: the steps share it
  size_t constant_bytes = 0;          // constants of all steps
  size_t staging_bytes = 0;           // batches on their way to a device
  size_t data_bytes = 0;              // samples, and the batches of loaders
  size_t snapshot_bytes = 0;          // as in PlanQuestion
  size_t runtime_bytes = 0;           // see runtime_bytes()
  double flops = 0, bytes = 0;        // operations and memory traffic of an update
  double seconds = 0;                 // planned seconds of an update; 0: unknown
  double likely_seconds = 0;          // likely seconds of an update; 0: unknown
  double measured_peaks_seconds = 0;  // as `seconds`, by measured peaks; 0: none were measured
  std::vector<TimeBill> time = {};    // `seconds`, by the work that it is for
  // These are total_bytes() and expected_seconds() of the answer without rematerialization and
  // memory limit; 0: this answer is that one, or it was not asked for.
  size_t unlimited_bytes = 0;
  double unlimited_seconds = 0;
  std::vector<Exchange> exchanges = {};  // with other ranks
  std::vector<Gather> gathers = {};      // of these, what operations take that need the whole
  double exchange_seconds = 0;           // of an update, planned
  double exposed_seconds = 0;            // of these, those in which kernels wait
  int64_t rematerialized = 0;            // kernels of an update
  bool on_host = true;                   // the operands of kernels are in host memory
  std::string basis = {};                // MachineSpec::basis
  std::string device_name = {};          // "NVIDIA H200"; "": unknown, or the host
  size_t device_bytes = 0;               // available to a run there; 0: unknown, or the host
  std::string machine = {};              // KernelChooser::machine()
  // `kernels` is KernelChooser::selection(): a resumed run uses these kernels again.
  std::map<std::string, std::string> kernels = {};

  // Returns the bytes of the bill of a purpose, by `what`; 0 where there is none.
  size_t bytes_of(std::string_view what) const;
  // Returns the bytes of state whose elements are set before the arena exists.
  size_t initial_bytes() const;
  // These are bytes in memory.
  size_t state_bytes() const;
  size_t total_bytes() const { return state_bytes() + arena_bytes + staging_bytes; }
  // Returns the bills of state_bytes() that tables show, in their order; what is offloaded is the
  // last.
  std::vector<Bill> state_bills() const;
  // Returns the expected seconds of an update: the likely time, or the roofline where only that is
  // known.
  double expected_seconds() const { return likely_seconds > 0 ? likely_seconds : seconds; }
  // Return parts of `seconds`: in compute-bound kernels, and in rematerialized ones.
  double compute_bound_seconds() const;
  double rematerialized_seconds() const;
  // Returns the share by which rematerialization makes an update longer.
  double recompute_price() const;
  // Returns the memory that a run can have on its device, or on this machine; 0: unknown.
  size_t memory_there() const;
  // Returns how much of it the run takes.
  size_t memory_taken() const { return on_host ? process_bytes() : total_bytes() + constant_bytes; }
  // Returns the upper bound of the process's memory. The measured peak is at most 2 % or 32 MiB
  // below it, whichever is more (see runtime_bytes()). Returns 0 on a device, whose memory is not
  // the process's.
  size_t process_bytes() const {
    if (!on_host) return 0;
    return std::max(total_bytes(), initial_bytes()) + constant_bytes + data_bytes + snapshot_bytes +
           runtime_bytes;
  }
  // Returns what `has` bytes in all leave to what a limit of memory covers: state, constants and
  // arena.
  size_t room_within(size_t has) const;
};

// Sums up plans of the question's steps, such as those of steps that will run.
PlanAnswer sum_up(const PlanQuestion& question, std::vector<PlannedStep> plans);

}  // namespace weft
