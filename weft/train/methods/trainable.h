// Chooses which weights of a model train: the weights of an adapter, or all weights that are not
// frozen.
#pragma once

#include "weft/models/model.h"
#include "weft/train/recipe/recipe.h"

namespace weft::train {

// Adds the recipe's adapter, which freezes all other weights, or freezes the parameters that
// model.freeze names. Throws Error(usage) for patterns that match no layer or parameter, and where
// nothing trains.
void choose_trainable(const Recipe& recipe, Model& model);
// Warns where weights of a published model are in blocks, which do not train, without an adapter.
void warn_of_blocks(const Recipe& recipe, const Model& model);

}  // namespace weft::train
