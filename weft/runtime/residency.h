// Residency manages where the bytes of a plan are during a run. All plans of a session share the
// arena; variables and constants are in memory that kernels can access. Offloaded slots
// (Space::file) are in files or, for a device, in host memory.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "weft/base/memory/device_memory.h"
#include "weft/device/compiler.h"
#include "weft/ir/bindings.h"

namespace weft {

class Results;

// A Workspace is the arena that executables share. Its users see to it that one of them runs at a
// time (Session, weft/tensor/session.h). It grows when an executable is made, never during a run.
struct Workspace {
  std::shared_ptr<Buffer> buffer;
  DeviceMemory* memory = nullptr;  // owns the buffer; null without one
  Results* results = nullptr;      // the results that are in the arena
  // Whether each run moves its results to memory of their own, as their readers do not know when
  // the arena is used next: several threads run its executables.
  bool moves_results = false;
  // `lent` is memory of the caller, aligned to buffer_alignment, in which the arena grows; empty:
  // the arena is allocated.
  std::span<std::byte> lent = {};
  // `communicator` allocates the arena, which the other ranks read; null: there are none.
  std::shared_ptr<Communicator> communicator = nullptr;
  // Throws Error(does_not_fit) where the caller's memory has fewer bytes.
  void reserve(size_t bytes, DeviceMemory& memory);
  void shrink(size_t bytes);  // back to the size before a plan that was given up
  // Moves results in the arena whose handles are held to memory of their own.
  void detach_results();
  // Leaves the arena to the holders of the results in it, who may be reading them, and allocates
  // another one. Memory of the caller stays the arena.
  void leave_to_results();
  // Measures the end of the highest cache line that was written since the buffer was allocated.
  size_t touched_bytes() const;
};

class Residency {
 public:
  // The plan, the memory and the workspace outlive it.
  Residency(const BoundPlan& bound, DeviceMemory& memory, Workspace& workspace)
      : plan_(bound.plan),
        bindings_(bound.bindings),
        memory_(memory),
        workspace_(workspace),
        arguments_(plan_.slots.size()) {}
  virtual ~Residency() = default;
  Residency(const Residency&) = delete;
  Residency& operator=(const Residency&) = delete;

  // Throws Error(does_not_fit) if memory has no room for the plan. `staged` is the bytes of staged
  // inputs on the device, `beside` the host bytes that the program holds for other purposes.
  virtual void check_fits(size_t staged, size_t beside) const = 0;
  // Allocates files or host memory for offloaded slots, before the arena is allocated.
  virtual void place_offloaded() = 0;
  virtual void place_constants() = 0;
  // Allocates variables where kernels can access them. Addresses stay valid until has_moved().
  void place();
  // Returns whether addresses have changed since place().
  bool has_moved() const;
  // Returns the address of a slot, from the first place() on; null if kernels cannot access it.
  std::byte* address(int slot) const;
  // Says where the caller's memory for a slot (Space::argument) is, until the next call.
  void lend_argument(int slot, std::byte* at) { arguments_[static_cast<size_t>(slot)] = at; }
  // CopyKernels begin and await the plan's transfers, by launch. Where copies() returns none, the
  // kernels of the last call stay valid.
  using CopyKernels = std::vector<std::pair<size_t, std::unique_ptr<Kernel>>>;
  virtual CopyKernels copies() = 0;
  // Waits for all copies that began, even after a launch threw.
  virtual void settle() {}
  // Lends the host memory of offloaded variables to the plan's device, or returns it to the host.
  void lend() const;

 protected:
  virtual void place_variables() = 0;
  virtual std::byte* constant(size_t slot) const = 0;
  virtual std::byte* offloaded_address(const Slot& slot) const = 0;
  // Returns the variables that the plan offloads, in the order of their slots.
  std::vector<VariableState*> offloaded_variables() const;
  size_t bytes_in(Space space) const;

  // Returns the storage of a slot that holds a variable.
  Storage& storage(const Slot& slot) const { return *bindings_.variable(slot)->storage; }

  const Plan& plan_;
  const Bindings& bindings_;
  DeviceMemory& memory_;
  Workspace& workspace_;

 private:
  std::byte* arena_ = nullptr;         // at the last place()
  std::vector<std::byte*> arguments_;  // by slot; null outside of Space::argument
  std::vector<std::pair<const Storage*, uint64_t>> variables_;  // storages and their moves() then
};

// Makes the residency for host memory, with files in `folder`, or for a device.
std::unique_ptr<Residency> make_residency(const BoundPlan& bound, DeviceMemory& memory,
                                          Workspace& workspace, const std::string& folder);

}  // namespace weft
