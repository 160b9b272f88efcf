// Residency: where the bytes of a plan are while it runs. All plans of a program share the arena;
// variables and constants are in the memory that kernels read. Offloaded slots (Space::file) are in
// files or, for a device, in the host's memory.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "weft/base/device_memory.h"
#include "weft/device/compiler.h"
#include "weft/ir/plan.h"

namespace weft {

class Executable;

// The arena that executables of one program share: only one of them runs at a time. It grows when
// an executable is made, never in a step.
struct Workspace {
  std::shared_ptr<Buffer> buffer;
  DeviceMemory* memory = nullptr;  // that the buffer is of; null until there is one
  Executable* last = nullptr;      // whose results lie in the arena now
  void reserve(size_t bytes, DeviceMemory& memory);
  void shrink(size_t bytes);  // to what it had before a plan that is not taken
  // Measured: the end of the highest cache line that was written since the buffer was allocated.
  size_t touched_bytes() const;
};

// The elements of a node of which another has them (Node::storage) come to the host.
void fetch(Node& node);

class Residency {
 public:
  Residency(const Plan& plan, DeviceMemory& memory, Workspace& workspace)
      : plan_(plan), memory_(memory), workspace_(workspace) {}
  virtual ~Residency() = default;
  Residency(const Residency&) = delete;
  Residency& operator=(const Residency&) = delete;

  // Throws Error(does_not_fit) where the plan has no room. `staged`: bytes of inputs on the device;
  // `beside`: of the host, that the program holds for other things.
  virtual void check_fits(size_t staged, size_t beside) const = 0;
  // What the plan keeps away has its place, before there is an arena.
  virtual void place_away() = 0;
  virtual void place_constants() = 0;
  // Variables have theirs, until they move.
  void place();
  // Since place(), so that addresses are others.
  bool has_moved() const;
  // Where the elements of a slot lie, from a first place() on; null where kernels cannot see it.
  std::byte* address(int slot) const;
  // Of the plan's transfers, and by what step: kernels that begin and await them. Those that stand
  // are as good as new ones where there are none.
  using CopyKernels = std::vector<std::pair<size_t, std::unique_ptr<Kernel>>>;
  virtual CopyKernels copies() = 0;
  // All copies that began are over, also where a step threw.
  virtual void settle() {}
  // What is kept away is copied for this plan from now on, by its device or the host.
  void lend() const;

 protected:
  virtual void place_variables() = 0;
  virtual std::byte* constant(const Value& value) const = 0;
  virtual std::byte* kept_away(const Slot& slot) const = 0;
  // Variables that the plan keeps away, in the order of their slots.
  std::vector<VariableState*> variables_away() const;
  size_t bytes_in(Space space) const;

  const Plan& plan_;
  DeviceMemory& memory_;
  Workspace& workspace_;

 private:
  std::byte* arena_ = nullptr;                                  // when place() looked last
  std::vector<std::pair<const Storage*, uint64_t>> variables_;  // and their moves then
};

// In the host's memory with files in `folder`, or in a device's.
std::unique_ptr<Residency> make_residency(const Plan& plan, DeviceMemory& memory,
                                          Workspace& workspace, const std::string& folder);

}  // namespace weft
