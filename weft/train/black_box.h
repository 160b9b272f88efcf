// blackbox.json: what a run that ends with a loss or gradient that is not finite leaves in its
// folder. It holds the update and its batch, the norms of the updates before it, and the first
// operation that spoiled them, found by doing the run again from its last checkpoint, or its start,
// and that update operation by operation in the type of the parameters. So a run pays nothing for
// it but the numbers of 50 updates; the search takes at most as long as the run since that
// checkpoint, and the memory of a step that keeps every value.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "weft/train/recipe.h"
#include "weft/train/steps.h"

namespace weft::train {

// Thrown where a run meets such numbers.
struct NonFiniteRun {
  int64_t step = 0;         // the update, from 1; of an evaluation: the one before it
  bool evaluation = false;  // not an update's loss, but that of an evaluation
  std::string run_folder;
  std::vector<StepNorms> norms;  // of the last updates up to this one
};

// Writes the file and yields the line for the user. A signal cuts the search short; what else goes
// wrong with it is said in the file.
std::string write_black_box(const Recipe& recipe, const NonFiniteRun& failure);

}  // namespace weft::train
