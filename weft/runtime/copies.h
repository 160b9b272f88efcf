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
  // Those that the plan reads are made anew where another wrote the weight: rounded on the host, to
  // the bits of the kernels, and written where they are.
  void refresh() const;
  // Before a run, which may end anywhere: what it assigns is written.
  void note_writes() const;
  // After it: copies that it assigned are those of their weights.
  void note_copies() const;

 private:
  std::vector<std::shared_ptr<VariableState>> read_, assigned_;
};

}  // namespace weft
