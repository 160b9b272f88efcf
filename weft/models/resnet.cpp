#include "weft/models/resnet.h"

#include <cmath>

#include "weft/models/zoo.h"

namespace weft::models {
namespace {
// 3x3, no bias; weights normal with variance 2 / fan-out, so that signals keep their size.
nn::ConvLayerOptions conv_options(int64_t out_channels, int64_t stride) {
  double deviation = std::sqrt(2.0 / static_cast<double>(9 * out_channels));
  return {.stride = stride, .padding = 1, .bias = false, .init = nn::Init::normal(0, deviation)};
}

// relu(bn2(conv2(relu(bn1(conv1(x))))) + shortcut(x))
class BasicBlock : public nn::Layer {
 public:
  BasicBlock(nn::Module& parent, std::string name, int64_t in, int64_t out, int64_t stride)
      : Layer(parent, std::move(name)),
        conv1_(*this, "conv1", in, out, 3, conv_options(out, stride)),
        bn1_(*this, "bn1", out),
        conv2_(*this, "conv2", out, out, 3, conv_options(out, 1)),
        bn2_(*this, "bn2", out),
        stride_(stride),
        new_channels_(out - in) {}

 protected:
  Tensor forward(const Tensor& x) const override {
    Tensor y = bn2_(conv2_(relu(bn1_(conv1_(x)))));
    return relu(y + shortcut(x));
  }

 private:
  // Every stride-th pixel, zero channels at the end.
  Tensor shortcut(const Tensor& x) const {
    if (stride_ == 1) return x;
    Tensor y = slice(slice(x, 2, 0, x.dim(2), stride_), 3, 0, x.dim(3), stride_);
    return pad(y, {0, 0, 0, 0}, {0, new_channels_, 0, 0});
  }

  nn::Conv2d conv1_;
  nn::BatchNorm bn1_;
  nn::Conv2d conv2_;
  nn::BatchNorm bn2_;
  int64_t stride_, new_channels_;
};
}  // namespace

ResNetConfig ResNetConfig::read(const nn::Options& config, const TaskShape& task) {
  check_task("resnet", InputKind::images, task);
  nn::OptionReader reader(config, "resnet");
  ResNetConfig c;
  reader.text("model_type", "resnet");
  c.depth = reader.integer("depth", c.depth, 8);
  if (c.depth % 6 != 2)
    throw Error(ErrorKind::usage, "[resnet] depth must be 6 n + 2 (20, 32, 44, 56, ...). Got {}.",
                c.depth);
  c.num_channels = reader.integer("num_channels", task.input[0]);
  c.num_labels = reader.integer("num_labels", task.classes);
  c.hidden_size = reader.integer("hidden_size", c.hidden_size);
  reader.finish();
  return c;
}

nn::Options ResNetConfig::options() const {
  return {{"model_type", std::string("resnet")},
          {"depth", depth},
          {"num_channels", num_channels},
          {"num_labels", num_labels},
          {"hidden_size", hidden_size}};
}

ResNet::ResNet(const ResNetConfig& config)
    : Model(InputKind::images, config.options()),
      conv1_(*this, "conv1", config.num_channels, config.hidden_size, 3,
             conv_options(config.hidden_size, 1)),
      bn1_(*this, "bn1", config.hidden_size),
      layer1_(*this, "layer1"),
      layer2_(*this, "layer2"),
      layer3_(*this, "layer3"),
      fc_(*this, "fc", 4 * config.hidden_size, config.num_labels) {
  int64_t width = config.hidden_size;
  for (nn::Sequential* stage : {&layer1_, &layer2_, &layer3_}) {
    bool first_stage = stage == &layer1_;
    int64_t out = first_stage ? width : 2 * width;
    for (int64_t block = 0; block < (config.depth - 2) / 6; ++block) {
      stage->add<BasicBlock>(width, out, block == 0 && !first_stage ? 2 : 1);
      width = out;
    }
  }
}

Tensor ResNet::forward(const Tensor& x) const {
  Tensor y = relu(bn1_(conv1_(x)));
  y = layer3_(layer2_(layer1_(y)));
  return fc_(mean(y, {.axes = {2, 3}}));
}

}  // namespace weft::models
