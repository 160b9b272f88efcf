// Copies of weights in a narrower type (passes/copies.cpp), which follow what is written to the
// weights.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "weft/ir/plan.h"

namespace weft {

class Copies {
 public:
  explicit Copies(const Plan& plan);
  // Before a run: those that the plan reads are made anew where another wrote the weight. Rounds on
  // the host, to the bits of the kernels.
  void refresh() const;
  // After a run: what the plan assigned was written, and its copies with it.
  void note_writes() const;

 private:
  std::vector<std::shared_ptr<VariableState>> read_, assigned_;
};

}  // namespace weft
