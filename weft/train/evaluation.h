// Evaluation: the model on the validation data, every sample once.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "weft/train/experiment.h"
#include "weft/train/report.h"
#include "weft/train/steps.h"

namespace weft::train {

// Loss, accuracy and perplexity over all that counts: images, tokens, or whole answers
// (Experiment::addition). `interrupted` is asked before each batch; nullopt once it says
// yes.
std::optional<Evaluation> evaluate(const Experiment& experiment, Steps& steps,
                                   const std::function<bool()>& interrupted);
// The same on its own; the device is the recipe's.
Evaluation evaluate(const Experiment& experiment);

// The model's own answers to the first `count` held-out sums, one a line: "123+045=168", and what
// is right where it erred. For data.dataset addition.
std::string addition_examples(const Experiment& experiment, int count);

}  // namespace weft::train
