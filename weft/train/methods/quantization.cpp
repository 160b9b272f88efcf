#include "weft/train/methods/quantization.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "weft/base/logging.h"

namespace weft::train {
namespace {
class QuantizationMethod : public Method {
 public:
  explicit QuantizationMethod(std::unique_ptr<quantization::Training> training)
      : training_(std::move(training)) {}

  std::vector<Variable> state() const override { return {training_->ranges()}; }
  std::vector<Variable> used_state() const override { return state(); }
  std::vector<Tensor> applied(std::vector<Tensor> results,
                              const Variable* step_count) const override {
    return training_->applied(results, step_count == nullptr ? Tensor() : step_count->value());
  }
  const quantization::Training* quantization() const override { return training_.get(); }

 private:
  std::unique_ptr<quantization::Training> training_;
};
}  // namespace

std::unique_ptr<Method> quantization_method(const Experiment& experiment,
                                            const MethodOptions& options) {
  auto training = make_quantization(experiment, options.initialize);
  if (training == nullptr) return nullptr;
  return std::make_unique<QuantizationMethod>(std::move(training));
}

const quantization::Training* quantization_of(const Experiment& experiment) {
  for (const auto& method : experiment.methods)
    if (const quantization::Training* const training = method->quantization()) return training;
  return nullptr;
}

void quantize(Experiment& experiment, std::unique_ptr<quantization::Training> training) {
  std::erase_if(experiment.methods,
                [](const auto& method) { return method->quantization() != nullptr; });
  if (training != nullptr)
    experiment.methods.insert(experiment.methods.begin(),
                              std::make_unique<QuantizationMethod>(std::move(training)));
}

quantization::Layers layers_of(const Experiment& experiment) {
  return quantization::layers_of(graph_of(experiment));
}

std::unique_ptr<quantization::Training> make_quantization(const Experiment& experiment, bool say) {
  const Recipe& recipe = experiment.recipe;
  if (!recipe->quantization.activations) return nullptr;
  quantization::Layers layers = layers_of(experiment);
  quantization::Scheme scheme{
      .dynamic = recipe->quantization.activations == ActivationRanges::dynamic,
      .weight_bits = recipe->quantization.weight_bits};
  const int64_t start = recipe->quantization.start_step;
  if (experiment.total_steps > 0 && start >= experiment.total_steps)
    recipe.refuse(keys::quantization::start_step,
                  fmt::format("quantization.start_step is below the {} steps of the run. Got {}.",
                              experiment.total_steps, start));
  const auto quantizes = [&] {
    for (size_t i = 0; i < layers.layers.size(); ++i)
      if (quantization::is_quantized(layers, scheme, i)) return true;
    return false;
  };
  if (!quantizes())
    recipe.refuse(keys::quantization::activations,
                  fmt::format("quantization.activations: this model has no {} with weights in "
                              "float32.",
                              scheme.dynamic ? "linear layers" : "convolutions or linear layers"));
  try {
    scheme.excluded = quantization::layers_like(layers, recipe->quantization.exclude,
                                                keys::quantization::exclude);
  } catch (const Error& error) {
    recipe.refuse(keys::quantization::exclude, error.what());
  }
  if (!quantizes())
    recipe.refuse(keys::quantization::exclude, "quantization: no layer is left to quantize.");
  auto training = std::make_unique<quantization::Training>(
      std::move(layers), std::move(scheme),
      quantization::TrainingOptions{.start_step = start,
                                    .momentum = recipe->quantization.momentum});
  if (say)
    logging::note("{} of {} layers compute with operands rounded to int8.",
                  training->quantized_layers(), training->layers().layers.size());
  return training;
}

}  // namespace weft::train
