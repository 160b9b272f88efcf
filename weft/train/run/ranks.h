// What a run does as one of several ranks (weft/device/world.h), which share out each batch. Rank 0
// alone writes the run's folder, but for the tensors of checkpoints, and the screen.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "weft/train/experiment.h"
#include "weft/train/run/steps.h"

namespace weft::train {

// Throws Error(usage) where a recipe shares a step out in a way that is estimated alone.
void refuse_described(const Recipe& recipe);
// Throws Error(usage) where a recipe has what does not run on several ranks. Plans ask it, too.
void refuse_on_ranks(const Recipe& recipe);
// Throws Error(usage) where this process' world cannot run a recipe: it has another number of
// ranks, or several for what runs on one.
void must_suit_world(const Recipe& recipe);
// Returns the mesh of the ranks of this process' world; null for one rank. Throws Error(usage)
// where the recipe does not suit it, or ranks have other recipes than rank 0. All ranks call it.
std::shared_ptr<const Mesh> mesh_of_ranks(const Recipe& recipe);
// Lets rank 0 act alone. All ranks call it, and throw the Error that it throws.
void on_first_rank(const std::function<void()>& act);
// Returns what rank 0 says.
bool agreed(bool mine);
// Throw Error(usage) where ranks have other data, and other plans or weights, than rank 0. All
// ranks call them: the first before the steps are compiled, which exchange what depends on the
// data.
void must_have_one_data_set(const Experiment& experiment);
void must_be_alike(const Experiment& experiment, Steps& steps);
// Throws Error(replicas_differ) where a rank has another value of a variable that all ranks hold
// whole, after `step` updates. They were equal after `equal_at`. All ranks call it.
void must_hold_alike(const Experiment& experiment, int64_t step, int64_t equal_at);
// Throws Error(checkpoint) on all ranks where one of them does not see the folder of checkpoints
// that rank 0 writes. All ranks call it, once the folder is there.
void must_share(const std::string& checkpoints);
// Returns the memory of this machine for each of its ranks, the same on all ranks, which call it.
size_t memory_of_a_rank(size_t available);

}  // namespace weft::train
