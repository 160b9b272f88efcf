// Refreshes narrower copies of weights (passes/graph/copies.cpp), and values derived from them
// (passes/graph/fixed.cpp), after their weights were written.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "weft/device/device.h"
#include "weft/ir/bindings.h"

namespace weft {

class Copies {
 public:
  Copies(const BoundPlan& bound, const KernelLibrary& library);
  // Refreshes in place the stale copies and derived values that the plan reads. Copies are rounded
  // on the host, to the same bits as by the kernels; the library computes derived values.
  void refresh() const;
  // Marks all assigned state as written, before the run, because a run may fail at any launch.
  void note_writes() const;
  // Marks the assigned copies as up to date, after the run.
  void note_copies() const;

 private:
  const KernelLibrary& library_;
  std::vector<std::shared_ptr<VariableState>> read_, assigned_, derived_;
};

}  // namespace weft
