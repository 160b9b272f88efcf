// Pruning in a run: what the recipe's `pruning` means for a model.
#pragma once

#include <memory>

#include "weft/optim/pruning.h"
#include "weft/train/experiment.h"
#include "weft/train/methods/channels.h"

namespace weft::train {

// Returns null where the recipe prunes nothing. With pattern 2:4, weights whose input features are
// no multiple of four stay whole, which a note says if `say`. Throws Error(usage) for a schedule
// that does not end before the run, patterns that match nothing, and where there is nothing to
// prune,
// and for channels that the file of an imported net does not let go.
std::unique_ptr<optim::Pruner> make_pruner(const Experiment& experiment, bool say);

// Returns whether the pruner makes zeros of a part of channels: of parameters that train, not of
// statistics.
bool is_pruned_with(const ChannelSlices& part);

}  // namespace weft::train
