// Declares AlexNet in one tower: Krizhevsky 2014, "One weird trick for parallelizing convolutional
// neural networks", with torchvision's widths and parameter names. It has 61,100,840 parameters for
// 1000 classes.
#pragma once

#include "weft/models/model.h"
#include "weft/nn/layers.h"

namespace weft::models {

struct AlexNetConfig {
  int64_t num_channels = 3;
  int64_t num_labels = 1000;
  int64_t hidden_size = 4096;  // width of the two linear layers before the last
  double dropout = 0.5;        // before each of them

  static AlexNetConfig read(const nn::Options& config, const TaskShape& task);
  nn::Options options() const;
};

class AlexNet : public Model {
 public:
  explicit AlexNet(const AlexNetConfig& config);

 protected:
  // Maps [B, C, H, W] to [B, num_labels]; height and width are at least 63, designed for 224.
  Tensor forward(const Tensor& x) const override;

 private:
  nn::Sequential features_, classifier_;
};

}  // namespace weft::models
