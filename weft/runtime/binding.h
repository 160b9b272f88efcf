// A Binding gives a plan's kernels the addresses of their operands, results and workspaces.
#pragma once

#include <cstddef>
#include <vector>

#include "weft/ir/plan.h"
#include "weft/runtime/compile_kernels.h"
#include "weft/runtime/residency.h"

namespace weft {

class Binding {
 public:
  // `plan`, `kernels` and `residency` outlive it.
  Binding(const Plan& plan, PlanKernels& kernels, Residency& residency)
      : plan_(plan), kernels_(kernels), residency_(residency) {}

  // Places variables, takes new kernels for transfers, and binds all kernels to their addresses.
  void bind();
  // Returns whether the addresses of the last bind() are those of the plan's slots.
  bool is_valid() const { return !launches_.empty() && !residency_.has_moved(); }
  void invalidate() { launches_.clear(); }

  // From the next launch on, kernels find the slot in this memory of the caller.
  void lend(int slot, std::byte* at);

  size_t size() const { return launches_.size(); }  // launches
  // Starts a launch, whose work may still run when the function returns.
  void run(size_t launch) const;

 private:
  void note_uses();

  struct Addresses {
    std::vector<void*> operands, results;
    void* workspace = nullptr;
  };
  // A Use is a place among the addresses of the launches where one slot's address stands.
  struct Use {
    size_t launch;
    bool is_result;
    size_t at;
  };

  const Plan& plan_;
  PlanKernels& kernels_;
  Residency& residency_;
  std::vector<Addresses> launches_;     // empty before the first bind()
  std::vector<std::vector<Use>> uses_;  // by slot; empty outside of Space::argument
};

}  // namespace weft
