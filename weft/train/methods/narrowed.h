// Removes channels from the model of an experiment.
#pragma once

#include <string>
#include <vector>

#include "weft/train/experiment.h"
#include "weft/train/methods/channels.h"

namespace weft::train {

// A TracedModel is the forward pass of an experiment's model, and its channels.
struct TracedModel {
  Graph graph;
  std::vector<std::string> names;  // of the results of an imported net's nodes
  std::vector<Value> results;      // of `names`, in the graph; undefined if not computed
  Channels channels;
};
TracedModel traced(const Experiment& experiment);

// Tries whether the file of an imported net takes fewer channels of these groups. Throws
// Error(usage) that names the node which does not.
void check_narrows(const Experiment& experiment, const TracedModel& traced,
                   const std::vector<bool>& groups);

// Replaces the model of an experiment without an optimizer by one without the channels whose
// weights are zeros, which computes the same but for the order of sums, and writes its widths, and
// no pruning, into the recipe; of an imported net also the file that checkpoints keep. Ranges that
// quantization-aware training learned stay. Throws Error(usage) where it has no channels that can
// be removed, or none of them is pruned, and where the file of an imported net does not take fewer.
void remove_pruned_channels(Experiment& experiment);

}  // namespace weft::train
