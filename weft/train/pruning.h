// Pruning in a run: what the recipe's `pruning` means for a model, and models from which pruned
// channels are removed.
#pragma once

#include <memory>

#include "weft/models/model.h"
#include "weft/optim/pruning.h"
#include "weft/train/experiment.h"

namespace weft::train {

// Returns null where the recipe prunes nothing. With pattern 2:4, weights whose input features are
// no multiple of four stay whole, which a note says if `say`. Throws Error(usage) for a schedule
// that does not end before the run, patterns that match nothing, and where there is nothing to
// prune.
std::unique_ptr<optim::Pruner> make_pruner(const Experiment& experiment, bool say);

// Replaces the model of an experiment without an optimizer by one without the channels whose
// weights are zeros, which computes the same but for the order of sums, and writes its widths, and
// no pruning, into the recipe. Throws Error(usage) where it has no channels that can be removed, or
// none of them is pruned.
void remove_pruned_channels(Experiment& experiment);

}  // namespace weft::train
