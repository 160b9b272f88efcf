// While a plan runs, Poison fills the dead bytes of the arena with NaN, so that a kernel that reads
// a dead value spoils its results; the address sanitizer stops it at the read.
#pragma once

#include <cstddef>
#include <vector>

#include "weft/ir/plan.h"

namespace weft {

class Poison {
 public:
  explicit Poison(const Plan& plan);

  void begin_run(std::byte* arena);  // only the inputs are live
  void begin_launch(size_t launch) const;
  void end_launch(size_t launch) const;
  void end_run() const;  // keeps the contents, but allows reading them again

 private:
  struct Range {
    size_t offset, bytes;
  };
  void allow(const Range& range) const;
  void forbid(const Range& range) const;

  std::vector<Range> inputs_;
  std::vector<std::vector<Range>> born_, dead_;  // by launch: live at its begin, dead at its end
  Range all_;
  std::byte* arena_ = nullptr;
};

}  // namespace weft
