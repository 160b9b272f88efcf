// Residual nets for small images: He et al. 2015, "Deep residual learning", section 4.2 (CIFAR
// form, option A shortcuts, which have no parameters). ResNet-20 has 269,722 parameters for ten
// classes.
#pragma once

#include "weft/models/model.h"
#include "weft/nn/layers.h"

namespace weft::models {

struct ResNetConfig {
  int64_t depth = 20;  // 6 n + 2
  int64_t num_channels = 3;
  int64_t num_labels = 10;
  int64_t hidden_size = 16;  // channels of the first stage; doubled by each of the two others

  static ResNetConfig read(const nn::Options& config, const TaskShape& task);
  nn::Options options() const;
};

class ResNet : public Model {
 public:
  explicit ResNet(const ResNetConfig& config);

 protected:
  Tensor forward(const Tensor& x) const override;  // [B, C, H, W] -> [B, num_labels]

 private:
  nn::Conv2d conv1_;
  nn::BatchNorm bn1_;
  nn::Sequential layer1_, layer2_, layer3_;
  nn::Linear fc_;
};

}  // namespace weft::models
