// Metrics that evaluations report, each an entry of a registry.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "weft/base/registry.h"
#include "weft/tensor/tensor.h"

namespace weft::train {

// Sums over what counts in a batch: rows or positions whose label is not data::ignored_label.
struct EvalSums {
  double loss = 0, correct = 0, count = 0;
  double rows = 0, exact_rows = 0;  // rows in which something counts, and all that counts is right
  std::vector<std::vector<double>> own = {};  // for each metric that is reported, what `sums` gives
  EvalSums& operator+=(const EvalSums& other);
};

struct MetricEntry {
  std::string name, doc;
  // Its value from the sums over all batches.
  std::function<double(const EvalSums& all, std::span<const double> own)> value;
  // More sums of a batch than EvalSums has, in the graph: of any shape, added up from batch to
  // batch on the host, in double. `scores` are [.., C], of labels [..], of which
  // data::ignored_label counts nowhere. Empty: none.
  std::function<Tensor(const Tensor& scores, const Tensor& labels)> sums = {};
  bool of_samples = false;  // it counts whole samples, not labels
};

}  // namespace weft::train

namespace weft::registry {
Registry<train::MetricEntry>& metrics();  // eval.metrics, and DataEntry::metric
}
