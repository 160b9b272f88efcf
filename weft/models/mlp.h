// Declares the multi-layer perceptron: fc1, activation, fc2, ... over flattened inputs.
#pragma once

#include "weft/models/model.h"
#include "weft/nn/layers.h"

namespace weft::models {

struct MlpConfig {
  int64_t num_features = 784;
  int64_t num_labels = 10;
  std::vector<int64_t> hidden_sizes = {256};
  std::string hidden_act = "relu";
  double dropout = 0;                     // after each hidden activation
  InputKind input = InputKind::features;  // images are flattened

  static MlpConfig read(const nn::Options& config, const TaskShape& task);
  nn::Options options() const;
};

class Mlp : public Model {
 public:
  explicit Mlp(const MlpConfig& config);
  std::vector<Variable> inner_weights() const override;
  nn::Options config_with(std::span<const int64_t> channels) const override;

 protected:
  Tensor forward(const Tensor& x) const override;  // [B, ...] -> [B, num_labels]

 private:
  nn::ActivationFunction activation_;
  std::vector<std::unique_ptr<nn::Linear>> layers_;
  nn::Dropout dropout_;
};

}  // namespace weft::models
