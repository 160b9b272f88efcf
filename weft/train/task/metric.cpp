#include "weft/train/task/metric.h"

#include <algorithm>
#include <cmath>

#include "weft/data/loader.h"

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

namespace {
using Own = std::span<const double>;
using Unread = const Recipe&;

// Metrics of a regression sum over each target alone, and are means over the targets.

// Returns sums over the batch [2, C]: of `term` of the differences between predictions and targets
// [batch, C], and of the targets that count. Targets that do not count have the difference 0.
Tensor sums_of(const Tensor& predictions, const Tensor& targets, Tensor (*term)(Arg)) {
  const Tensor counts = targets != data::ignored_target;
  const Tensor difference = select(counts, cast(predictions, targets.dtype()) - targets, 0);
  return stack(
      {sum(term(difference), {.axes = {0}}), sum(cast(counts, difference.dtype()), {.axes = {0}})},
      0);
}

// Returns the mean over the targets of `of`, called with the index of a target, the sum of its
// terms, and how many of its values count.
template <class Of>
double mean_over_targets(Own own, Of of) {
  const size_t targets = own.size() / 2;
  double total = 0;
  for (size_t i = 0; i < targets; ++i) total += of(i, own[i], own[targets + i]);
  return total / static_cast<double>(targets);
}

double unit_of(const EvalSums& all, size_t target) {
  return all.target_units.empty() ? 1 : all.target_units[target];
}

// A constant target, such as the target of a single sample, has no variance to explain: its score
// is 1 if it is predicted exactly, else 0, as in scikit-learn (which gives NaN for one sample).
double r2_of(double residual, double variation) {
  if (variation > 0) return 1 - residual / variation;
  return residual == 0 ? 1 : 0;
}

MetricEntry mae() {
  return {.name = "mae",
          .doc = "regression: mean absolute error, in the target's unit",
          .value =
              [](const EvalSums& all, Own own, Unread) {
                return mean_over_targets(own, [&](size_t i, double sum, double count) {
                  return unit_of(all, i) * sum / count;
                });
              },
          .sums = [](const Tensor& predictions, const Tensor& targets,
                     Unread) { return sums_of(predictions, targets, abs); },
          .of_samples = true,
          .labels = DType::f32};
}

MetricEntry rmse() {
  return {.name = "rmse",
          .doc = "regression: root of the mean squared error, in the target's unit",
          .value =
              [](const EvalSums& all, Own own, Unread) {
                return mean_over_targets(own, [&](size_t i, double sum, double count) {
                  return unit_of(all, i) * std::sqrt(sum / count);
                });
              },
          .sums = [](const Tensor& predictions, const Tensor& targets,
                     Unread) { return sums_of(predictions, targets, square); },
          .of_samples = true,
          .labels = DType::f32};
}

MetricEntry r2() {
  return {.name = "r2",
          .doc = "regression: share of the targets' variance that is explained",
          .value =
              [](const EvalSums& all, Own own, Unread) {
                return mean_over_targets(own, [&](size_t i, double sum, double) {
                  return r2_of(sum, all.target_variations[i]);
                });
              },
          .sums = [](const Tensor& predictions, const Tensor& targets,
                     Unread) { return sums_of(predictions, targets, square); },
          .of_samples = true,
          .labels = DType::f32};
}
}  // namespace
}  // namespace train

Registry<train::MetricEntry>& registry::metrics() {
  using namespace train;
  static Registry<MetricEntry> metrics(
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
        .value = [](const EvalSums& all, Own, Unread) { return std::exp(all.loss / all.count); }},
       mae(),
       rmse(),
       r2()});
  return metrics;
}

}  // namespace weft
