// What to change in a recipe whose step does not fit.
#pragma once

#include <string>

#include "weft/device/spec.h"
#include "weft/train/recipe.h"

namespace weft::train {

// Returns a sentence that names the changes which would fit in the recipe's `train.memory`, and all
// in all in `has` bytes (0: unknown): kernels that run again, products in bfloat16, smaller
// micro-batches, activations kept in bfloat16, no limit of the gradients' norm, state in files;
// where state alone exceeds the limit, what shrinks or moves it. The cheapest comes first, each
// with its planned time against that of the recipe in as much memory as it likes. The search plans
// what it names until most of WEFT_PATIENCE is over since `began`, when the plan that failed was
// begun, and holds no memory of a run.
std::string changes_that_fit(const Recipe& recipe, const MachineSpec& machine, size_t has,
                             double began);

// The same of a recipe that fits at `seconds` an update, of changes that take clearly less; ""
// where there is none.
std::string quicker_changes(const Recipe& recipe, const MachineSpec& machine, size_t has,
                            double began, double seconds);

}  // namespace weft::train
