// Declares residual nets: He et al. 2015, "Deep residual learning for image recognition".
//
// Form "cifar" (section 4.2, for small images) has depth 6 n + 2; ResNet-20 has 269,722 parameters
// for ten classes. Form "imagenet" (section 4.1) has depth 18, 34, 50, 101 or 152; the 3x3
// convolution of a bottleneck has the stride, as in torchvision, whose names the parameters have.
//
// Where the shape changes, shortcuts are projections (option B; always so in form "imagenet"), or
// the subsampled input with zeros for the new channels (option A): after the others, or half of
// them before and half after, as widely used implementations of ResNet-20 have them
// (pytorch_resnet_cifar10). Weights fit both, but give different results.
#pragma once

#include "weft/models/model.h"
#include "weft/nn/layers.h"

namespace weft::models {

struct ResNetConfig {
  std::string form = "cifar";
  std::string shortcut = "zeros_behind";  // "zeros_around", "projection"
  int64_t depth = 20;
  int64_t num_channels = 3;
  int64_t num_labels = 10;
  int64_t hidden_size = 16;  // the first stage's channels; later stages double them. imagenet: 64
  // Channels inside the blocks, in their order (conv1's; in a bottleneck conv1's and conv2's);
  // empty: the width of their stage. Pruned nets have fewer.
  std::vector<int64_t> inner_channels = {};

  static ResNetConfig read(const nn::Options& config, const TaskShape& task);
  nn::Options options() const;
};

class ResNet : public Model {
 public:
  explicit ResNet(const ResNetConfig& config);
  std::vector<Variable> inner_weights() const override;
  nn::Options config_with(std::span<const int64_t> channels) const override;

 protected:
  Tensor forward(const Tensor& x) const override;  // [B, C, H, W] -> [B, num_labels]

 private:
  nn::Conv2d conv1_;
  nn::BatchNorm bn1_;
  std::vector<std::unique_ptr<nn::Sequential>> stages_;  // layer1, layer2, ...
  nn::Linear fc_;
  bool pooled_;  // the stem ends in a pool
};

}  // namespace weft::models
