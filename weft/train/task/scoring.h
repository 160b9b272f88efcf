// Selects the loss and the metrics of a run, which must fit its task: the losses and metrics of a
// regression take numbers, all others take labels.
#pragma once

#include <string_view>
#include <vector>

#include "weft/train/recipe/recipe.h"
#include "weft/train/task/dataset.h"
#include "weft/train/task/loss.h"
#include "weft/train/task/metric.h"

namespace weft::train {

// Returns the type of a task's labels: f32 targets of a regression, else i64.
DType labels_of(Task task);
// Returns "numbers" or "labels" for that type.
std::string_view label_kind(DType labels);

// These throw Error(usage) for a loss or a metric that does not fit the task.
const LossEntry& loss_of(const Recipe& recipe, Task task);
// The first metric is the score: higher is better.
std::vector<const MetricEntry*> metrics_of(const Recipe& recipe, const DataEntry& entry, Task task);

}  // namespace weft::train
