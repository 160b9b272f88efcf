#include "weft/train/task/loss.h"

#include <string_view>

#include "weft/data/loader.h"

namespace weft {
namespace {
constexpr std::string_view smoothing_key = "loss.label_smoothing", delta_key = "loss.delta";

// Training uses smoothed targets; evaluations use the labels themselves.
train::LossEntry cross_entropy_entry() {
  return {.name = "cross_entropy",
          .doc = "-log of the probability that softmax gives the label",
          .total =
              [](const Tensor& scores, const Tensor& labels, const train::Recipe& recipe) {
                return cross_entropy(scores, labels,
                                     {.ignore_index = data::ignored_label,
                                      .label_smoothing = recipe.number(smoothing_key),
                                      .reduction = Reduction::sum});
              },
          .evaluation_total =
              [](const Tensor& scores, const Tensor& labels, const train::Recipe&) {
                return cross_entropy(
                    scores, labels,
                    {.ignore_index = data::ignored_label, .reduction = Reduction::sum});
              },
          .keys = {{smoothing_key, KeyType::number, "0", "", 0, 1,
                    "share of the target spread over all classes"}}};
}

// `loss` maps predictions and targets of equal shapes to a loss for each, 0 where they are equal,
// as both are made where a target does not count.
template <class Loss>
train::LossEntry of_numbers(const char* name, const char* doc, Loss loss,
                            const std::vector<RecipeKey>& keys = {}) {
  return {
      .name = name,
      .doc = doc,
      .total =
          [loss](const Tensor& predictions, const Tensor& targets, const train::Recipe& recipe) {
            const DType type = accumulator(predictions.dtype());  // float32 for 16 bits
            const Tensor counts = targets != data::ignored_target;
            return sum(loss(select(counts, cast(predictions, type), 0),
                            select(counts, cast(targets, type), 0), recipe));
          },
      .keys = keys,
      .labels = DType::f32};
}
}  // namespace

Registry<train::LossEntry>& registry::losses() {
  using train::Recipe;
  static Registry<train::LossEntry> losses(
      "loss", "loss",
      {cross_entropy_entry(),
       of_numbers("mse", "regression: mean of the squared differences",
                  [](const Tensor& y, const Tensor& t, const Recipe&) {
                    return mse_loss(y, t, Reduction::none);
                  }),
       of_numbers("l1", "regression: mean of the absolute differences",
                  [](const Tensor& y, const Tensor& t, const Recipe&) {
                    return l1_loss(y, t, Reduction::none);
                  }),
       of_numbers("huber", "regression: squared below loss.delta, absolute above",
                  [](const Tensor& y, const Tensor& t, const Recipe& recipe) {
                    return huber_loss(y, t, recipe.number(delta_key), Reduction::none);
                  },
                  {{delta_key, KeyType::number, "1", "", 1e-9, 1e9,
                    "huber: the difference, in standard deviations of a normalized target, from "
                    "which on the loss is linear"}})});
  return losses;
}

}  // namespace weft
