// Declares the transforms of images that recipes name, each an entry of a registry, and how a
// picture becomes a row of a model's input.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>

#include "weft/base/recipe/registry.h"
#include "weft/data/transforms.h"
#include "weft/nn/options.h"
#include "weft/tensor/tensor.h"
#include "weft/train/recipe/recipe.h"

namespace weft::train {

struct Preparation {
  data::Transforms transforms = {};
  std::optional<data::Normalization> normalization = {};  // absent: the data set's
};

struct TransformEntry {
  std::string name, doc;
  bool random = false;  // for training images alone; other transforms are for evaluation, too
  std::function<void(nn::OptionReader&, Preparation&)> read;
};

// Returns the preparation that data.transforms, data.mean and data.std give images with `channels`
// channels. Throws Error(usage), which names the key.
Preparation preparation_of(const Recipe& recipe, int64_t channels, bool training);

// Returns the shape [C, H, W] that a picture has after the transforms of an evaluation. Throws
// Error(data), which names the file.
Shape picture_shape(const Recipe& recipe, int64_t channels, const std::string& path);

// Returns pictures (JPEG or PNG) as f32 [N, C, H, W], which are rows of the input of a model that
// the recipe trains: decoded, transformed and normalized as in an evaluation. `row` is the shape
// [C, H, W] that the model takes. Throws Error(data), which names the file, for a picture that has
// another size after its transforms.
Tensor picture_rows(const Recipe& recipe, const Shape& row, std::span<const std::string> paths);

}  // namespace weft::train

namespace weft::registry {
Registry<train::TransformEntry>& transforms();  // data.transforms
}  // namespace weft::registry
