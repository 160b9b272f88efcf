// What a run does as one of several ranks (weft/device/world.h). As yet every rank computes the
// whole step; rank 0 alone writes the run's folder and the screen.
#pragma once

#include <cstddef>

#include "weft/train/experiment.h"
#include "weft/train/run/steps.h"

namespace weft::train {

// Throws Error(usage) where a run of this recipe cannot have several ranks.
void check_ranks(const Recipe& recipe);
// Throws Error(usage) where ranks have other recipes, data, plans or weights than rank 0. All ranks
// call it.
void must_be_alike(const Experiment& experiment, Steps& steps);
// Waits until all ranks are as far: replicas that share nothing else would drift apart, and could
// not stop after one step.
void keep_step();
// Returns the memory of this machine for each of its ranks, the same on all ranks, which call it.
size_t memory_of_a_rank(size_t available);

}  // namespace weft::train
