// Declares what checkpoints keep of labelled images, so that a trained model is built without its
// data, and names the classes that it tells apart.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "weft/train/task/dataset.h"

namespace weft::train {

struct KeptImages {
  std::vector<std::string> classes;  // names, by label
  Shape image;                       // [C, H, W] of a row of the model's input
};

// Reads the file of a checkpoint; nullopt where it has none, as those of other data. Throws
// Error(checkpoint).
std::optional<KeptImages> kept_images(const std::string& checkpoint);

// Returns the task without its sources, and with the file that checkpoints keep.
TaskData task_of(const KeptImages& kept);

}  // namespace weft::train
