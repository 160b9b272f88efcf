// Executable: a plan with its kernels compiled and its memory in place. Running it allocates
// nothing and decides nothing.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "weft/device/device.h"
#include "weft/ir/plan.h"
#include "weft/passes/passes.h"
#include "weft/runtime/compile_kernels.h"
#include "weft/runtime/copies.h"
#include "weft/runtime/residency.h"

namespace weft {

class Poison;

// Told of a step of the plan when all that it does is done, before the next one begins.
using StepObserver = std::function<void(size_t step)>;
// Told of every step after a run: when it began, on the steady clock, and how long it took.
using StepTimer = std::function<void(size_t step, double begin, double seconds)>;

class Executable {
 public:
  // Compiles the kernels, several at once, and runs each that a library may refuse once, on numbers
  // that mean nothing; moves variables to a file in `folder` where the plan has them in one. A null
  // workspace makes a plan that cannot run. Throws KernelsRefused, and Error(does_not_fit) where
  // the plan, what compiles it, and `beside` bytes of the host that the program holds have no room.
  Executable(Plan plan, const KernelLibrary& library, std::shared_ptr<Workspace> workspace,
             const std::string& folder = ".", size_t beside = 0);
  ~Executable();
  Executable(const Executable&) = delete;
  Executable& operator=(const Executable&) = delete;

  // Copies inputs (evaluated, of the plan's types) into their slots and runs the steps in order.
  // Results lie in the arena; handles to them that are still held when any executable of the
  // workspace runs next are copied out first.
  std::span<const Value> run(std::span<const Value> inputs);

  const Plan& plan() const { return plan_; }
  // Variables are where a run finds them, with the elements that it will find; as run() sees to.
  void settle_variables();
  // Where the elements of a slot lie, from a first run on, in the memory of the device; of
  // one in a file null, or, for a device, with the host.
  std::byte* address(int slot) const;
  // Of the arena, which other executables may share, the bytes that were really touched.
  size_t used_arena_bytes() const;
  // Leaves the arena to those who hold elements of its results; the next run takes another. For a
  // workspace that no other executable has.
  void release();
  // An empty one is told nothing more.
  void set_observer(StepObserver observer) { observer_ = std::move(observer); }
  void set_timer(StepTimer timer) { timer_ = std::move(timer); }
  // Fills what is dead with NaN while the plan runs; as debug builds always do.
  void set_poisoning(bool on);

 private:
  struct BoundStep {
    std::vector<void*> operands, results;
    void* workspace = nullptr;
  };
  void make_staging();
  void take_inputs(std::span<const Value> inputs);
  void bind();
  void detach_results();
  void show_results();
  void run_steps();
  void run_step(size_t i, bool waits) const;
  void tell_times(Timeline& timeline, double begin) const;
  void run_recorded();
  void copy_assigned();
  void finish_kernels() const;

  Plan plan_;
  const KernelCompiler& compiler_;
  bool stages_inputs_;
  std::shared_ptr<Workspace> workspace_;  // null: the plan cannot run, and there is none of these:
  DeviceMemory* memory_ = nullptr;        // that kernels see
  std::unique_ptr<Residency> residency_;
  Copies copies_;
  StepKernels kernels_;
  // Of a device that stages inputs: with the host, on the device, and the copy between them.
  std::shared_ptr<Buffer> inputs_here_, inputs_there_;
  std::unique_ptr<SideCopy> input_copy_;
  std::vector<BoundStep> bound_;      // empty before the first run
  std::unique_ptr<Kernel> recorded_;  // all steps, as they are bound; null: not yet
  bool warm_ = false;                 // they ran once since they were bound
  std::vector<Value> results_;
  StepObserver observer_;
  StepTimer timer_;
  std::unique_ptr<Poison> poison_;  // null: off
};

// Of the inputs, on a device that stages them (KernelLibrary::stages_inputs), each aligned.
size_t staged_bytes(const Plan& plan);

// Plans, and plans again without the kernels that libraries refuse, which a warning names.
std::unique_ptr<Executable> make_executable(const std::function<Plan()>& plan,
                                            const KernelLibrary& library,
                                            const std::shared_ptr<Workspace>& workspace,
                                            const std::string& folder = ".", size_t beside = 0);

// Plans `graph` for the library on this thread count and compiles it. On the null library, and with
// a null workspace, the plan is all.
std::unique_ptr<Executable> compile_graph(const Graph& graph, const KernelLibrary& library,
                                          std::shared_ptr<Workspace> workspace,
                                          PassOptions options = {});

}  // namespace weft
