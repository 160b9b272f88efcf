// Poison: while a plan runs, fills the bytes of the arena that no value lives in with NaN, so that
// a kernel that reads a dead value shows in the results; the address sanitizer stops it on the
// spot.
#pragma once

#include <cstddef>
#include <vector>

#include "weft/ir/plan.h"

namespace weft {

class Poison {
 public:
  explicit Poison(const Plan& plan);

  void begin_run(std::byte* arena);  // nothing lives but the inputs
  void begin_step(size_t step) const;
  void end_step(size_t step) const;
  void end_run() const;  // what is filled stays so; reading it is no longer an error

 private:
  struct Range {
    size_t offset, bytes;
  };
  void allow(const Range& range) const;
  void forbid(const Range& range) const;

  std::vector<Range> inputs_;
  std::vector<std::vector<Range>> born_, dead_;  // at the begin and at the end of each step
  Range all_;
  std::byte* arena_ = nullptr;
};

}  // namespace weft
