// Declares the metrics that evaluations report, each an entry of a registry.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "weft/base/recipe/registry.h"
#include "weft/tensor/tensor.h"
#include "weft/train/recipe/recipe.h"

namespace weft::train {

// EvalSums are sums over the elements that count in a batch: rows or positions whose label is not
// data::ignored_label, or targets that are not data::ignored_target.
struct EvalSums {
  double loss = 0, correct = 0, count = 0;
  double rows = 0, exact_rows = 0;  // rows where something counts; where all of it is right
  std::vector<std::vector<double>> own = {};  // for each reported metric, the result of its `sums`
  // `target_units` are the standard deviations by which a regression's targets were divided:
  // differences times these have the targets' own units.
  std::vector<double> target_units = {};
  // `target_variations` are the sums of squared differences of a regression's targets from their
  // mean (data::Source::target_variations).
  std::vector<double> target_variations = {};
  EvalSums& operator+=(const EvalSums& other);
};

struct MetricEntry {
  std::string name, doc;
  // Computes the metric from the sums over all batches.
  std::function<double(const EvalSums& all, std::span<const double> own, const Recipe&)> value;
  // Computes further sums of a batch in the graph, of any shape, accumulated over batches in f64.
  // `scores` are [.., C], `labels` [..]; data::ignored_label must not count. Empty: none. For a
  // regression they are predictions and targets [batch, C]; data::ignored_target must not count.
  std::function<Tensor(const Tensor& scores, const Tensor& labels, const Recipe&)> sums = {};
  bool of_samples = false;           // counts whole samples, not labels
  std::vector<RecipeKey> keys = {};  // added to the recipe's table: "eval.tau"
  DType labels = DType::i64;         // the labels that it takes; f32: the targets of a regression
};

}  // namespace weft::train

namespace weft::registry {
Registry<train::MetricEntry>& metrics();  // eval.metrics, and DataEntry::metric
}
