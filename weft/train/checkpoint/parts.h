// A CheckpointPart is one kind of file of a checkpoint. Saving, verifying, loading, listing and the
// checks of a resumed run walk one list of parts. This header is internal to checkpoint/.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "weft/train/checkpoint/checkpoint.h"
#include "weft/train/checkpoint/manifest.h"

namespace weft::train {

// A function that is null has nothing to do for the part. They throw Error(checkpoint) for a file
// that is damaged, Error(usage) where the recipe differs from the checkpoint's.
struct CheckpointPart {
  std::vector<std::string_view> files;  // the names that its files may have
  bool required = false;                // every checkpoint has one of them
  // Appends its files.
  void (*add)(CheckpointFiles& to, const Experiment& experiment, const Progress& progress) = {};
  // Refuse to go on with another run than the one that was saved, or to use another model.
  void (*check_run)(const std::string& folder, const Experiment& experiment) = {};
  void (*check_model)(const std::string& folder, const Experiment& experiment) = {};
  // Load what the trained model is used with, and what a resumed run needs besides.
  void (*load_model)(const std::string& folder, Experiment& experiment) = {};
  void (*load_run)(const std::string& folder, Experiment& experiment, Progress& progress) = {};
};

// Returns the parts in the order in which they are checked and loaded.
const std::vector<CheckpointPart>& checkpoint_parts();

// Returns the number of updates that data.json says.
int64_t step_in(const std::string& folder);

}  // namespace weft::train
