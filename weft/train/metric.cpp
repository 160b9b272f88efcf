#include "weft/train/metric.h"

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
struct Differences {
  Tensor counts, difference, target;  // [batch, C]; zeros where a target does not count
  Differences(const Tensor& predictions, const Tensor& targets)
      : counts(targets != data::ignored_target),
        difference(select(counts, cast(predictions, targets.dtype()) - targets, 0)),
        target(select(counts, targets, 0)) {}
  // Returns the sums [rows of `terms`, C], and in the last row the number of targets that count.
  Tensor sums(std::vector<Tensor> terms) const {
    terms.push_back(cast(counts, target.dtype()));
    for (Tensor& term : terms) term = sum(term, {.axes = {0}});
    return stack(terms, 0);
  }
};

// Returns the mean over the targets of `of`, called with a target's sums, which are `terms` and the
// number of those that count, and with its unit.
template <class Of>
double mean_over_targets(const EvalSums& all, Own own, size_t terms, Of of) {
  const size_t targets = own.size() / (terms + 1);
  double total = 0;
  for (size_t i = 0; i < targets; ++i) {
    std::vector<double> sums;
    for (size_t term = 0; term <= terms; ++term) sums.push_back(own[term * targets + i]);
    total += of(sums, all.target_units.empty() ? 1 : all.target_units[i]);
  }
  return total / static_cast<double>(targets);
}

MetricEntry mae() {
  return {.name = "mae",
          .doc = "regression: mean absolute error, in the target's unit",
          .value =
              [](const EvalSums& all, Own own, Unread) {
                return mean_over_targets(all, own, 1, [](const auto& sums, double unit) {
                  return unit * sums[0] / sums[1];
                });
              },
          .sums =
              [](const Tensor& predictions, const Tensor& targets, Unread) {
                const Differences all(predictions, targets);
                return all.sums({abs(all.difference)});
              },
          .of_samples = true,
          .labels = DType::f32};
}

MetricEntry rmse() {
  return {.name = "rmse",
          .doc = "regression: root of the mean squared error, in the target's unit",
          .value =
              [](const EvalSums& all, Own own, Unread) {
                return mean_over_targets(all, own, 1, [](const auto& sums, double unit) {
                  return unit * std::sqrt(sums[0] / sums[1]);
                });
              },
          .sums =
              [](const Tensor& predictions, const Tensor& targets, Unread) {
                const Differences all(predictions, targets);
                return all.sums({square(all.difference)});
              },
          .of_samples = true,
          .labels = DType::f32};
}

// A constant target has no variance to explain: its score is 1 if it is met exactly, else 0, as
// scikit-learn's.
double r2_of(double residual, double variation) {
  if (variation > 0) return 1 - residual / variation;
  return residual == 0 ? 1 : 0;
}

MetricEntry r2() {
  return {.name = "r2",
          .doc = "regression: share of the targets' variance that is explained",
          .value =
              [](const EvalSums& all, Own own, Unread) {
                return mean_over_targets(all, own, 3, [](const auto& sums, double) {
                  return r2_of(sums[0], sums[2] - sums[1] * sums[1] / sums[3]);
                });
              },
          .sums =
              [](const Tensor& predictions, const Tensor& targets, Unread) {
                const Differences all(predictions, targets);
                return all.sums({square(all.difference), all.target, square(all.target)});
              },
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
