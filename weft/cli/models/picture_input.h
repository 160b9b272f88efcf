// Gives pictures to a model: each is decoded and prepared as the model's recipe says, and becomes a
// row of its input.
#pragma once

#include <string>
#include <vector>

#include "weft/cli/models/array_model.h"

namespace weft::cli {

struct PictureResults {
  std::vector<std::string> pictures;  // paths
  std::vector<Tensor> outputs;        // of the model, with a row for each picture
  Tensor first;                       // the input of the first pictures, as the model ran on it
};

// Runs a model on JPEG and PNG files; of a folder, on all that are in it. A few pictures at a time
// are in memory. Throws Error(usage) for a model that takes no pictures, for an ONNX file without
// flags that say how they are normalized, and where an output has no row for each picture;
// Error(data), which names the file, for a picture that is damaged or has another size.
PictureResults run_on_pictures(const ArrayModel& model, const std::vector<std::string>& paths);

}  // namespace weft::cli
