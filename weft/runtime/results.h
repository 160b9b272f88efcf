// Results are the handles of what the last run of a plan computed. They are views of the arena:
// those that somebody still holds when a plan of the same workspace runs next get memory of their
// own first.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "weft/base/memory/device_memory.h"
#include "weft/ir/plan.h"
#include "weft/runtime/residency.h"

namespace weft {

class Results {
 public:
  // `plan`, `residency` and `memory` outlive it.
  Results(const Plan& plan, const Residency& residency, DeviceMemory& memory,
          std::shared_ptr<Workspace> workspace);
  ~Results();  // detaches them
  Results(const Results&) = delete;
  Results& operator=(const Results&) = delete;

  // Detaches the results that are in the arena, whose next results are these.
  void claim_arena();
  // Moves results whose handles are held to memory of their own.
  void detach();
  // Makes handles of what a run computed. Those of the last run that nobody holds are used again.
  // Where threads share the arena, moves the results to memory of their own.
  std::span<const Value> show();
  // Drops all handles, as their addresses are no longer the plan's.
  void forget();
  // Leaves the arena to those who hold elements of it.
  void release();

 private:
  void leave_arena();

  const Plan& plan_;
  const Residency& residency_;
  DeviceMemory& memory_;
  std::shared_ptr<Workspace> workspace_;
  std::vector<Value> values_;  // by output; empty handle: none was made yet
  bool have_left_ = false;     // the arena, for memory of their own
};

}  // namespace weft
