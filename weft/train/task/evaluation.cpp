#include "weft/train/task/evaluation.h"

#include "weft/data/loader.h"

namespace weft::train {

std::optional<Evaluation> evaluate(const Experiment& experiment, Steps& steps,
                                   const std::function<bool()>& interrupted) {
  data::Loader loader(experiment.validation, experiment.evaluation());
  EvalSums sums;
  for (data::Batch batch; loader.next(batch);) {
    if (interrupted()) return std::nullopt;
    sums += steps.evaluate(batch.inputs, batch.labels);
  }
  sums.own.resize(experiment.metrics.size());
  sums.target_units = experiment.target_units;
  if (experiment.task == Task::regression)
    sums.target_variations = experiment.validation->target_variations();
  auto value = [&](size_t i) {
    return experiment.metrics[i]->value(sums, sums.own[i], experiment.recipe);
  };
  const bool whole = experiment.metrics[0]->of_samples;
  // Non-finite sums give no number to convert; the loss, which is then not finite, ends the run.
  const double counted = whole ? sums.rows : sums.count;
  const bool counts = counted >= 0 && counted < 0x1p62;
  Evaluation evaluation{.loss = sums.loss / sums.count,
                        .score = value(0),
                        .score_name = std::string(experiment.score_name()),
                        .count = counts ? static_cast<int64_t>(counted) : 0};
  for (size_t i = 1; i < experiment.metrics.size(); ++i)
    evaluation.others.emplace_back(experiment.metrics[i]->name, value(i));
  return evaluation;
}

Evaluation evaluate(const Experiment& experiment) {
  if (experiment.validation == nullptr)
    throw Error(ErrorKind::usage,
                "recipe: nothing to evaluate on. Hint: --data.val_split 0.1, or --data.val_path.");
  Steps steps(experiment, experiment.recipe->train.device);
  return *evaluate(experiment, steps, [] { return false; });
}

}  // namespace weft::train
