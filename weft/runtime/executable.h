// An Executable is a plan with compiled kernels and allocated memory. A run allocates nothing and
// decides nothing.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "weft/device/device.h"
#include "weft/ir/bindings.h"
#include "weft/passes/passes.h"
#include "weft/runtime/residency.h"

namespace weft {

// Called for each launch of the plan after its work has completed and before the next one begins.
using LaunchObserver = std::function<void(size_t launch)>;
// Called for every launch after a run, with its begin (steady clock) and its duration in seconds.
using LaunchTimer = std::function<void(size_t launch, double begin, double seconds)>;

// An Executable is for one thread at a time, together with the others of its workspace.
class Executable {
 public:
  // Compiles the kernels, several in parallel, and runs each kernel that a library may refuse once
  // on arbitrary contents. Moves variables that the plan offloads to a file in `folder`. With a
  // null workspace the plan cannot run. Throws KernelsRefused, and Error(does_not_fit) if memory
  // has no room for the plan, its compilation and `beside`, the host bytes that the program holds
  // for other purposes.
  Executable(BoundPlan plan, const KernelLibrary& library, std::shared_ptr<Workspace> workspace,
             const std::string& folder = ".", size_t beside = 0);
  ~Executable();
  Executable(const Executable&) = delete;
  Executable& operator=(const Executable&) = delete;

  // Copies inputs (evaluated, of the plan's types) into their slots and runs the launches in order.
  // Results are views of the arena. A result whose handle is still held when any executable of the
  // workspace runs next is copied out first.
  std::span<const Value> run(std::span<const Value> inputs);
  // Runs with inputs and results at these addresses of host memory, row-major and of the plan's
  // types. What the plan leaves in the caller's memory (StepOptions::lend_arguments) is read and
  // written there; all else is copied. Inputs are not written; results must overlap nothing, and be
  // aligned to buffer_alignment. Throws Error(usage) for other addresses.
  void run(std::span<const std::byte* const> inputs, std::span<std::byte* const> results);

  const Plan& plan() const { return bound_.plan; }
  const BoundPlan& bound() const { return bound_; }
  // Binds the plan to its variables if they moved, and refreshes stale copies, as run() does.
  void settle_variables();
  // Returns the address of a slot in the memory that kernels see, from the first run on. For an
  // offloaded slot it is null or, with a device, the address in host memory.
  std::byte* address(int slot) const;
  // Returns the bytes of the arena that were touched; other executables may share the arena.
  size_t used_arena_bytes() const;
  // Leaves the arena to the holders of its results; the next run allocates another one. No other
  // executable may have this workspace.
  void release();
  // An empty observer ends the calls.
  void set_observer(LaunchObserver observer);
  void set_timer(LaunchTimer timer);
  // Turns filling dead bytes with NaN during runs on or off; debug builds have it on for the host.
  // A step of several ranks, which read each other's arenas, has it from its compilation on or not.
  void set_poisoning(bool on);

 private:
  class Running;
  Running& running() const;  // throws Error(usage) where the plan cannot run

  BoundPlan bound_;
  std::unique_ptr<Running> running_;  // null: the plan cannot run
};

// Makes an executable of `plan()`. While libraries refuse kernels, plans again without them, and
// logs one warning.
std::unique_ptr<Executable> make_executable(const std::function<BoundPlan()>& plan,
                                            const KernelLibrary& library,
                                            const std::shared_ptr<Workspace>& workspace,
                                            const std::string& folder = ".", size_t beside = 0);

// Plans `graph` for the library on this thread count and compiles it. If the library only plans, or
// the workspace is null, nothing is compiled and the executable cannot run.
std::unique_ptr<Executable> compile_graph(const Graph& graph, const KernelLibrary& library,
                                          std::shared_ptr<Workspace> workspace,
                                          PassOptions options = {});

}  // namespace weft
