#include "weft/train/task/scoring.h"

#include <algorithm>
#include <iterator>
#include <string>

#include <fmt/format.h>

namespace weft::train {

DType labels_of(Task task) { return task == Task::regression ? DType::f32 : DType::i64; }
std::string_view label_kind(DType labels) { return is_float(labels) ? "numbers" : "labels"; }

const LossEntry& loss_of(const Recipe& recipe, Task task) {
  const std::string wanted =
      recipe->loss.name.value_or(task == Task::regression ? "mse" : "cross_entropy");
  const LossEntry& loss = registry::losses().get(wanted);
  if (loss.labels != labels_of(task))
    recipe.refuse(keys::loss::name,
                  fmt::format("loss.name {} takes {}. The task of these data is {}. Hint: "
                              "--loss.name auto.",
                              wanted, label_kind(loss.labels), name(task)));
  return loss;
}

std::vector<const MetricEntry*> metrics_of(const Recipe& recipe, const DataEntry& entry,
                                           Task task) {
  const bool regression = task == Task::regression;
  std::vector<const MetricEntry*> metrics = {
      &registry::metrics().get(regression ? "r2" : entry.metric)};
  auto add = [&](std::string_view name) {
    const MetricEntry* metric = &registry::metrics().get(name);
    if (metric->labels != labels_of(task))
      recipe.refuse(keys::eval::metrics,
                    fmt::format("eval.metrics: {} takes {}. The task of these data is {}.", name,
                                label_kind(metric->labels), train::name(task)));
    if (std::ranges::find(metrics, metric) == metrics.end()) metrics.push_back(metric);
  };
  if (task == Task::causal_lm && entry.metric == "accuracy") add("perplexity");
  if (regression)
    for (std::string_view usual : {"mae", "rmse"}) add(usual);
  for (const std::string& name : recipe->eval.metrics) {
    add(name);
    constexpr std::string_view taken[] = {"loss", "accuracy", "count", "eval_step"};
    if (name != entry.metric && std::ranges::find(taken, name) != std::end(taken))
      recipe.refuse(keys::eval::metrics,
                    fmt::format("eval.metrics: evaluations report {} as {} with these data.",
                                name == "accuracy" ? entry.metric : "their own", name));
  }
  if (recipe->checkpoint.best == (regression ? "accuracy" : "r2"))
    recipe.refuse(keys::checkpoint::best,
                  fmt::format("checkpoint.best is loss or {} with these data. Got {}.",
                              regression ? "r2" : "accuracy", *recipe->checkpoint.best));
  return metrics;
}

}  // namespace weft::train
