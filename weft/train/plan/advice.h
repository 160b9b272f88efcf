// Suggests recipe changes with which a training step fits in memory or takes less time.
#pragma once

#include <string>

#include "weft/train/run/trainer.h"

namespace weft::train {

// Returns a sentence that names changes with which the run fits within the limit of its question
// and takes at most `has` bytes in total (0: unknown): rematerialization, products in bfloat16,
// smaller micro-batches, bfloat16 activations, no gradient clipping, state in files; where the
// state alone exceeds the limit, changes that shrink or move the state. The cheapest change comes
// first, each with its planned time relative to `whole_seconds`, the planned time of an update
// without a memory limit. The search plans candidates until most of WEFT_PATIENCE has passed since
// `began`, the time at which the failed plan was started, and it allocates none of a run's memory.
std::string changes_that_fit(const RunQuestion& run, size_t has, double began,
                             double whole_seconds);

// Does the same for a run that fits and takes `seconds` an update: names changes with which an
// update takes clearly less time. Returns "" if there are no such changes.
std::string quicker_changes(const RunQuestion& run, size_t has, double began, double seconds);

}  // namespace weft::train
