// Declares the description of labelled images that checkpoints keep, so that a trained model can be
// built without its data, and can name its classes.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weft/train/task/dataset.h"

namespace weft::train {

inline constexpr std::string_view kept_images_file = "images.json";  // of a checkpoint

struct KeptImages {
  std::vector<std::string> classes;  // names, by label
  Shape image;                       // [C, H, W] of a row of the model's input
};

// Reads images.json of a checkpoint; nullopt if the checkpoint has none, as for other data. Throws
// Error(checkpoint).
std::optional<KeptImages> kept_images(const std::string& checkpoint);

// Returns the task without its sources, and with the file that checkpoints keep.
TaskData task_of(const KeptImages& kept);

}  // namespace weft::train
