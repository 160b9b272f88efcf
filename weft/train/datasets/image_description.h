// Declares the description of labelled images that checkpoints keep, so that a trained model can be
// built without its data, and can name its classes.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weft/train/task/dataset.h"

namespace weft::train {

inline constexpr std::string_view image_description_file = "images.json";  // of a checkpoint

struct ImageDescription {
  std::vector<std::string> classes;  // names, by label
  Shape image;                       // [C, H, W] of a row of the model's input
};

// Reads images.json of a checkpoint; nullopt if the checkpoint has none, as for other data. Throws
// Error(checkpoint).
std::optional<ImageDescription> image_description(const std::string& checkpoint);

// Returns the task without its sources, and with the file that checkpoints keep.
TaskData task_of(const ImageDescription& description);

}  // namespace weft::train
