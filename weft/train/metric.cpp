#include "weft/train/metric.h"

#include <algorithm>
#include <cmath>

namespace weft {

namespace train {
EvalSums& EvalSums::operator+=(const EvalSums& other) {
  loss += other.loss;
  correct += other.correct;
  count += other.count;
  rows += other.rows;
  exact_rows += other.exact_rows;
  own.resize(std::max(own.size(), other.own.size()));
  for (size_t i = 0; i < other.own.size(); ++i) {
    own[i].resize(other.own[i].size());
    for (size_t j = 0; j < own[i].size(); ++j) own[i][j] += other.own[i][j];
  }
  return *this;
}
}  // namespace train

Registry<train::MetricEntry>& registry::metrics() {
  using train::EvalSums;
  using Own = std::span<const double>;
  using Unread = const train::Recipe&;
  static Registry<train::MetricEntry> metrics(
      "eval", "metric",
      {{.name = "accuracy",
        .doc = "share of labels that have the highest score",
        .value = [](const EvalSums& all, Own, Unread) { return all.correct / all.count; }},
       {.name = "exact_match",
        .doc = "share of samples whose labels are all predicted right",
        .value = [](const EvalSums& all, Own, Unread) { return all.exact_rows / all.rows; },
        .of_samples = true},
       {.name = "perplexity",
        .doc = "exp of the loss per label",
        .value = [](const EvalSums& all, Own, Unread) { return std::exp(all.loss / all.count); }}});
  return metrics;
}

}  // namespace weft
