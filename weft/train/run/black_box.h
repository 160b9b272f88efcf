// Writes blackbox.json, the record that a run leaves in its folder when a loss or gradient is not
// finite. It holds the update and its batch, the norms of the updates before it, and the first
// operation with a non-finite result. The search replays the run from its last checkpoint, or from
// its start, and executes the failing update operation by operation in the type of the parameters.
// A run without a failure therefore only records the numbers of 50 updates; the search takes at
// most as long as the run since that checkpoint, and the memory of a step that keeps every value.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "weft/train/recipe/recipe.h"
#include "weft/train/run/steps.h"

namespace weft::train {

// Thrown where a run meets a loss or gradient that is not finite.
struct NonFiniteRun {
  int64_t step = 0;         // the update, from 1; for an evaluation, the update before it
  bool evaluation = false;  // the loss of an evaluation is not finite
  std::string run_folder;
  std::vector<StepNorms> norms;  // norms of the last updates up to this one
};

// Writes the file and returns the line shown to the user. A signal cuts the search short; any other
// failure of the search is recorded in the file.
std::string write_black_box(const Recipe& recipe, const NonFiniteRun& failure);

}  // namespace weft::train
