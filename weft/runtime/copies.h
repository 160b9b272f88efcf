// Refreshes narrower copies of weights (passes/copies.cpp) after their weights were written.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "weft/ir/plan.h"

namespace weft {

class Copies {
 public:
  explicit Copies(const Plan& plan);
  // Refreshes in place the copies that the plan reads and that are stale. They are rounded on the
  // host, to the same bits as by the kernels.
  void refresh() const;
  // Marks all assigned state as written, before the run, because a run may fail at any launch.
  void note_writes() const;
  // Marks the assigned copies as up to date, after the run.
  void note_copies() const;

 private:
  std::vector<std::shared_ptr<VariableState>> read_, assigned_;
};

}  // namespace weft
