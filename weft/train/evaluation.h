// Evaluation: the model on the validation data, every sample once.
#pragma once

#include <functional>
#include <optional>

#include "weft/train/experiment.h"
#include "weft/train/report.h"
#include "weft/train/steps.h"

namespace weft::train {

// Loss and the experiment's metrics over all that counts: images, tokens, or whole samples where
// the data set says so. `interrupted` is asked before each batch; nullopt once it says yes.
std::optional<Evaluation> evaluate(const Experiment& experiment, Steps& steps,
                                   const std::function<bool()>& interrupted);
// The same on its own; the device is the recipe's.
Evaluation evaluate(const Experiment& experiment);

}  // namespace weft::train
