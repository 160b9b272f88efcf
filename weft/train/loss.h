// Losses that recipes name, each an entry of a registry.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "weft/base/registry.h"
#include "weft/tensor/tensor.h"
#include "weft/train/recipe.h"

namespace weft::train {

// scores [batch, C] or [batch, length, C] and labels i64 of the axes before the last -> a scalar:
// the mean over labels that are not data::ignored_label, as passes of one update are weighed by
// these.
using Loss = std::function<Tensor(const Tensor& scores, const Tensor& labels, const Recipe&)>;

struct LossEntry {
  std::string name, doc;
  Loss train;
  Loss evaluate = {};                // what evaluations report; empty: the same
  std::vector<RecipeKey> keys = {};  // that it brings to the recipe's table: "loss.gamma"
};

}  // namespace weft::train

namespace weft::registry {
Registry<train::LossEntry>& losses();  // loss.name
}
