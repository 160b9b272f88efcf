// Results are the handles of the outputs of a plan's last run, as views of the arena. An output
// that somebody still holds when a plan of the same workspace runs next moves to memory of its own
// first. Nothing of an executable may run meanwhile.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "weft/base/memory/device_memory.h"
#include "weft/ir/bindings.h"
#include "weft/runtime/residency.h"

namespace weft {

class Results {
 public:
  // `bound`, `residency` and `memory` outlive it.
  Results(const BoundPlan& bound, const Residency& residency, DeviceMemory& memory,
          std::shared_ptr<Workspace> workspace);
  ~Results();  // detaches them
  Results(const Results&) = delete;
  Results& operator=(const Results&) = delete;

  // Detaches the results that are in the arena, which will hold these results next.
  void claim_arena();
  // Moves results whose handles are held to memory of their own.
  void detach();
  // Makes handles of the outputs of a run, and reuses the handles of the last run that nobody
  // holds. Moves the results to memory of their own where Workspace::moves_results says so.
  std::span<const Value> show();
  // Drops all handles, as their addresses are no longer the plan's.
  void forget();
  // Leaves the arena to the holders of its elements.
  void release();

 private:
  void leave_arena();

  const Plan& plan_;
  const Bindings& bindings_;
  const Residency& residency_;
  DeviceMemory& memory_;
  std::shared_ptr<Workspace> workspace_;
  std::vector<Value> values_;  // by output; empty handle: none was made yet
  bool have_left_ = false;     // whether the results moved out of the arena, to memory of their own
};

}  // namespace weft
