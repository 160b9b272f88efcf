// Places the random numbers of the passes of an update.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "weft/ir/graph.h"
#include "weft/tensor/tensor.h"

namespace weft::train {

// PassDraws gives the random numbers that a pass draws for its samples the place that these samples
// have in the batch of the whole update. An update draws the same numbers in one pass or in
// several, and so do ranks that share out the batch. Numbers that do not belong to samples are the
// same in all passes.
class PassDraws {
 public:
  explicit PassDraws(int64_t passes);

  // Takes the shapes of random numbers from a step that computes the whole batch at once.
  void learn(const Graph& whole);
  bool is_known() const { return wholes_.has_value(); }
  // Within the step of a pass that is being captured, after its last assignment: places its random
  // numbers, and lets the last pass alone advance random_step().
  void place() const;

 private:
  int64_t passes_;
  Variable pass_;                                   // i64 scalar: passes of this update, so far
  std::optional<std::map<int64_t, Shape>> wholes_;  // by stream
};

}  // namespace weft::train
