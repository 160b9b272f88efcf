// Makes the pruner of a run from the recipe's `pruning` section.
#pragma once

#include <memory>

#include "weft/optim/pruning.h"
#include "weft/train/experiment.h"
#include "weft/train/methods/channels.h"

namespace weft::train {

// Returns null where the recipe prunes nothing. With pattern 2:4, weights whose input features are
// no multiple of four stay whole, which a note says if `say`. Throws Error(usage) for a schedule
// that does not end before the run, patterns that match nothing, a model without weights to prune,
// and channels that the file of an imported net cannot lose.
std::unique_ptr<optim::Pruner> make_pruner(const Experiment& experiment, bool say);

// Returns whether the pruner zeroes this part of the channels, as it does in parameters that train,
// but not in statistics.
bool is_pruned_with(const ChannelSlices& part);

}  // namespace weft::train
