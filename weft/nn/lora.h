// Low-rank adaptation (LoRA: Hu et al. 2021, "LoRA: Low-rank adaptation of large language models"):
// a model's weights are frozen; training changes only a product of two small matrices, added to the
// weight of each chosen linear layer. Names and meanings are those of Hugging Face's PEFT.
//
//   nn::add_lora(model, {"q_proj", "v_proj"}, {.r = 8, .lora_alpha = 16});
//   optim::AdamW optimizer(model.parameters());  // the adapters alone
//   ...
//   nn::merge_lora(model);  // an ordinary model again
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "weft/nn/layers.h"

namespace weft::nn {

struct LoraOptions {
  int64_t r = 8;            // rank
  double lora_alpha = 8;    // the product is scaled by lora_alpha / r
  double lora_dropout = 0;  // dropout rate of the adapter's input, in training
  // Scales by lora_alpha / sqrt(r) instead (Kalajdzievski 2023, "A rank stabilization scaling
  // factor for fine-tuning with LoRA").
  bool use_rslora = false;
  // Also trains the norm of each row of the sum of weight and product (Liu et al. 2024, "DoRA:
  // Weight-decomposed low-rank adaptation").
  bool use_dora = false;

  double scale() const;
  friend bool operator==(const LoraOptions&, const LoraOptions&) = default;
};

// Lora is the adapter of one linear layer. Its parameters are registered in the layer:
// lora_A.weight [r, in], lora_B.weight [out, r], which begins as zeros, and with DoRA
// lora_magnitude_vector [out].
class Lora {
 public:
  Lora(Linear& layer, const LoraOptions& options);
  ~Lora();

  // Returns y, the layer's result for x, as the adapted layer gives it.
  Tensor adapted(const Linear& layer, const Tensor& x, const Tensor& y) const;
  // Returns the weight [out, in] with which the layer without adapter gives the same results.
  Tensor merged(const Linear& layer) const;

 private:
  struct Magnitude;
  Tensor product() const;  // scale B A, [out, in]

  LoraOptions options_;
  Linear a_, b_;
  std::unique_ptr<Magnitude> magnitude_;  // null without DoRA
};

// Freezes all parameters of a model and adds an adapter to each linear layer that `targets` name: a
// target is the end of a path ("q_proj", "mlp.up_proj"), in which '*' matches any characters;
// "all-linear" means all linear layers but the head. Returns the paths of the adapted layers.
// Throws Error(usage) for a target that names no linear layer, and for a layer that has an adapter.
std::vector<std::string> add_lora(Module& model, std::span<const std::string> targets,
                                  const LoraOptions& options = {});
// Adds the adapters' products to the weights and removes the adapters. Weights stay frozen.
void merge_lora(Module& model);
// Returns the linear layers of a model, in the order of its modules.
std::vector<Linear*> linear_layers(const Module& model);
// Returns the linear layers that have an adapter.
std::vector<const Linear*> adapted_layers(const Module& model);
// Returns the parameters of adapters, by names relative to the model.
std::vector<NamedVariable> lora_parameters(const Module& model);

}  // namespace weft::nn
