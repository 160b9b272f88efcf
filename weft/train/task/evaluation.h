// Evaluation: runs the model on the validation data, every sample once.
#pragma once

#include <functional>
#include <optional>

#include "weft/train/experiment.h"
#include "weft/train/run/report.h"
#include "weft/train/run/steps.h"

namespace weft::train {

// Returns the loss and the experiment's metrics over everything that counts: images, tokens, or
// whole samples where the data set says so. `interrupted` is called before each batch; once it
// returns true, the result is nullopt.
std::optional<Evaluation> evaluate(const Experiment& experiment, Steps& steps,
                                   const std::function<bool()>& interrupted);
// Does the same with steps of its own, on the recipe's device.
Evaluation evaluate(const Experiment& experiment);

}  // namespace weft::train
