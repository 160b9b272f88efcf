#include "weft/train/loss.h"

#include "weft/data/loader.h"

namespace weft {
namespace {
// Training uses smoothed targets; evaluations use the labels themselves.
train::LossEntry cross_entropy_entry() {
  return {.name = "cross_entropy",
          .doc = "-log of the probability that softmax gives the label",
          .train =
              [](const Tensor& scores, const Tensor& labels, const train::Recipe& recipe) {
                return cross_entropy(scores, labels,
                                     {.ignore_index = data::ignored_label,
                                      .label_smoothing = recipe.number("loss.label_smoothing")});
              },
          .evaluate =
              [](const Tensor& scores, const Tensor& labels, const train::Recipe&) {
                return cross_entropy(scores, labels, {.ignore_index = data::ignored_label});
              },
          .keys = {{"loss.label_smoothing", KeyType::number, "0", "", 0, 1,
                    "share of the target spread over all classes"}}};
}
}  // namespace

Registry<train::LossEntry>& registry::losses() {
  static Registry<train::LossEntry> losses("loss", "loss", {cross_entropy_entry()});
  return losses;
}

}  // namespace weft
