#include "weft/train/evaluation.h"

#include <cmath>

#include "weft/data/loader.h"

namespace weft::train {

std::optional<Evaluation> evaluate(const Experiment& experiment, Steps& steps,
                                   const std::function<bool()>& interrupted) {
  data::Loader loader(experiment.validation, {.batch_size = experiment.eval_batch});
  EvalSums sums;
  for (data::Batch batch; loader.next(batch);) {
    if (interrupted()) return std::nullopt;
    sums += steps.evaluate(batch.inputs, batch.labels);
  }
  const bool whole = experiment.dataset->metric == "exact_match";
  const bool language = experiment.task == Task::causal_lm && !whole;
  const double loss = sums.loss / sums.count;
  return Evaluation{.loss = loss,
                    .accuracy = whole ? sums.exact_rows / sums.rows : sums.correct / sums.count,
                    .count = static_cast<int64_t>(whole ? sums.rows : sums.count),
                    .perplexity = language ? std::exp(loss) : 0};
}

Evaluation evaluate(const Experiment& experiment) {
  if (experiment.validation == nullptr)
    throw Error(ErrorKind::usage,
                "recipe: nothing to evaluate on. Hint: --data.val_split 0.1, or --data.val_path.");
  Steps steps(experiment, experiment.recipe.text("train.device"));
  return *evaluate(experiment, steps, [] { return false; });
}

}  // namespace weft::train
