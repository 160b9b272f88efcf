// Sets up the quantization-aware training of a run from the recipe's `quantization` section.
#pragma once

#include <memory>

#include "weft/quantization/training.h"
#include "weft/train/experiment.h"

namespace weft::train {

// Returns null where the recipe quantizes nothing. A note says how many layers are quantized if
// `say`. Throws Error(usage) where the model has no layers to quantize, and for patterns that match
// none.
std::unique_ptr<quantization::Training> make_quantization(const Experiment& experiment, bool say);

// Returns the quantization-aware training of an experiment; null where it has none.
const quantization::Training* quantization_of(const Experiment& experiment);
// Replaces the training that quantization_of() returns; with null, layers compute unrounded.
void quantize(Experiment& experiment, std::unique_ptr<quantization::Training> training);

// Returns the layers of an experiment's model.
quantization::Layers layers_of(const Experiment& experiment);

}  // namespace weft::train
