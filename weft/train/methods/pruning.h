// Tells what the recipe's `pruning` section prunes.
#pragma once

#include "weft/train/methods/channels.h"

namespace weft::train {

// Returns whether pruning zeroes this part of the channels, as it does in parameters that train,
// but not in statistics.
bool is_pruned_with(const ChannelSlices& part);

}  // namespace weft::train
