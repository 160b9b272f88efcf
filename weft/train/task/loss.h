// Declares the losses that recipes name, each an entry of a registry.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "weft/base/recipe/registry.h"
#include "weft/tensor/tensor.h"
#include "weft/train/recipe/recipe.h"

namespace weft::train {

// Maps scores [batch, C] or [batch, length, C] and i64 labels of the axes before the last to a
// scalar: the sum over labels that are not data::ignored_label. The loss of a regression maps
// predictions [batch, C] and f32 targets [batch, C] likewise, where data::ignored_target does not
// count. A step divides by how many labels count in all passes of an update, so that parts of a
// batch add up to the whole.
using Loss = std::function<Tensor(const Tensor& scores, const Tensor& labels, const Recipe&)>;

struct LossEntry {
  std::string name, doc;
  Loss total;
  Loss evaluation_total = {};        // reported by evaluations; empty: `total`
  std::vector<RecipeKey> keys = {};  // added to the recipe's table: "loss.gamma"
  DType labels = DType::i64;         // the labels that it takes; f32: the targets of a regression
};

}  // namespace weft::train

namespace weft::registry {
Registry<train::LossEntry>& losses();  // loss.name
}
