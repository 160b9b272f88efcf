// Declares small convolutional nets: the MNIST net of common tutorials, and LeNet-5.
#pragma once

#include "weft/models/model.h"
#include "weft/nn/layers.h"

namespace weft::models {

struct CnnConfig {
  int64_t num_channels = 1, image_height = 28, image_width = 28;
  int64_t num_labels = 10;
  std::vector<int64_t> conv_channels = {32, 64};
  int64_t hidden_size = 128;
  double dropout = 0;  // before the last layer

  static CnnConfig read(const nn::Options& config, const TaskShape& task);
  nn::Options options() const;
};

// Cnn is conv 3x3, relu, pool 2, conv 3x3, relu, pool 2, linear, relu, linear.
class Cnn : public Model {
 public:
  explicit Cnn(const CnnConfig& config);
  std::vector<Variable> inner_weights() const override;
  nn::Options config_with(std::span<const int64_t> channels) const override;

 protected:
  Tensor forward(const Tensor& x) const override;  // [B, C, H, W] -> [B, num_labels]

 private:
  nn::Conv2d conv1_, conv2_;
  nn::Linear fc1_, fc2_;
  nn::Dropout dropout_;
};

struct LeNet5Config {
  int64_t num_channels = 1, image_height = 28, image_width = 28;
  int64_t num_labels = 10;
  std::string hidden_act = "tanh";

  static LeNet5Config read(const nn::Options& config, const TaskShape& task);
  nn::Options options() const;
};

// LeNet5 is conv 5x5 to 6, average pool 2, conv 5x5 to 16, average pool 2, linear 120, 84, classes.
// Images narrower than 32 are padded by 2 on each side, as the paper embeds digits of 28 in 32.
class LeNet5 : public Model {
 public:
  explicit LeNet5(const LeNet5Config& config);

 protected:
  Tensor forward(const Tensor& x) const override;  // [B, C, H, W] -> [B, num_labels]

 private:
  nn::ActivationFunction activation_;
  nn::Conv2d conv1_, conv2_;
  nn::Linear fc1_, fc2_, fc3_;
};

}  // namespace weft::models
