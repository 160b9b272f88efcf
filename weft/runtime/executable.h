// Executable: a plan with its kernels compiled and its memory in place. Running it allocates
// nothing and decides nothing.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "weft/base/error.h"
#include "weft/device/device.h"
#include "weft/ir/plan.h"
#include "weft/passes/passes.h"

namespace weft {

class Executable;
class Poison;
class Transfers;

// The arena that executables of one program share: only one of them runs at a time. It grows when
// an executable is made, never in a step.
struct Workspace {
  std::shared_ptr<Buffer> buffer;
  DeviceMemory* memory = nullptr;  // that the buffer is of; null: the host's
  Executable* last = nullptr;      // whose results lie in the arena now
  void reserve(size_t bytes, DeviceMemory* memory);
  // Measured: the end of the highest cache line that was written since the buffer was allocated.
  size_t touched_bytes() const;
};

// Steps of a plan whose kernels their libraries refuse to compile or to run on this device
// (KernelLibrary::may_refuse). The library avoids these kernels from then on.
struct KernelsRefused : Error {
  explicit KernelsRefused(std::vector<std::string> all)
      : Error(ErrorKind::device, "{}", all.front()), refusals(std::move(all)) {}
  // In the order of the steps; of each what the library says, its kernel, its module.
  std::vector<std::string> refusals;
};

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
  // Where the elements of a slot lie, from a first run on, in the memory of the device; of
  // one in a file null, or, for a device, with the host.
  std::byte* address(int slot) const;
  // Of the arena, which other executables may share, the bytes that were really touched.
  size_t used_arena_bytes() const;
  // An empty one is told nothing more.
  void set_observer(StepObserver observer) { observer_ = std::move(observer); }
  void set_timer(StepTimer timer) { timer_ = std::move(timer); }
  // Fills what is dead with NaN while the plan runs; as debug builds always do.
  void set_poisoning(bool on);

 private:
  struct BoundStep {
    std::unique_ptr<Kernel> kernel;
    std::vector<void*> operands, results;
    void* workspace = nullptr;
  };
  size_t held_bytes() const;
  void compile_kernels();
  void try_kernels();
  size_t outside_bytes(const Access& access) const;
  void try_kernel(size_t step, std::byte* outside) const;
  void refuse(size_t step, const Error& error);
  void check_refusals() const;
  void place_in_files();
  void make_transfers();
  void place_with_host();
  void make_side_copies();
  void make_staging();
  void place_on_device();
  void lend_variables();
  void take_inputs(std::span<const Value> inputs);
  void bind();
  void detach_results();
  void show_results();
  void run_steps();
  void run_step(size_t i, bool waits) const;
  // Where nobody waited for each, a kernel before step `i` may have failed.
  Error error_of_step(size_t i, const Error& error, bool waited) const;
  void tell_times(Timeline& timeline, double begin) const;
  void run_recorded();
  void copy_assigned();
  void finish_kernels() const;

  Plan plan_;
  const KernelLibrary& library_;
  DeviceMemory* memory_;  // null: the host's
  std::shared_ptr<Workspace> workspace_;
  std::unordered_map<const Node*, std::shared_ptr<Buffer>> constants_;  // on the device
  std::byte* bound_to_ = nullptr;  // the arena's start when pointers were last resolved
  // Of a device that stages inputs: with the host, on the device, and the copy between them.
  std::shared_ptr<Buffer> inputs_here_, inputs_there_;
  std::unique_ptr<SideCopy> input_copy_;
  int bound_moves_ = 0;                                 // VariableState::moves then
  std::unique_ptr<Transfers> transfers_;                // null: there are none
  std::string folder_;                                  // of files
  FileRange file_;                                      // of the plan's own slots in files
  std::vector<std::unique_ptr<SideCopy>> side_copies_;  // on a device, in place of transfers_
  std::shared_ptr<Buffer> host_;                        // in place of file_
  std::vector<BoundStep> steps_;
  std::map<size_t, std::string> refusals_;  // what libraries said, by the step
  std::unique_ptr<Kernel> recorded_;  // all steps, as they are bound; null: not yet, or cannot be
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
