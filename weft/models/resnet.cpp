#include "weft/models/resnet.h"

#include <cmath>
#include <numeric>

#include "weft/models/zoo.h"

namespace weft::models {
namespace {
constexpr std::string_view forms[] = {"cifar", "imagenet"};
constexpr std::string_view shortcuts[] = {"zeros_behind", "zeros_around", "projection"};

// Convolutions have no bias; weights are normal with variance 2 / fan-out, to preserve variance.
nn::ConvLayerOptions conv_options(int64_t kernel, int64_t out_channels, int64_t stride) {
  double fan_out = static_cast<double>(kernel * kernel * out_channels);
  return {.stride = stride,
          .padding = kernel / 2,
          .bias = false,
          .init = nn::Init::normal(0, std::sqrt(2 / fan_out))};
}

// Stages is the number of blocks of each stage, and their kind.
struct Stages {
  std::vector<int64_t> blocks;
  bool bottleneck = false;
};
std::optional<Stages> stages_of(const ResNetConfig& config) {
  if (config.form == "cifar") {
    if (config.depth < 8 || config.depth % 6 != 2) return std::nullopt;
    return Stages{std::vector<int64_t>(3, (config.depth - 2) / 6)};
  }
  switch (config.depth) {
    case 18:
      return Stages{{2, 2, 2, 2}};
    case 34:
      return Stages{{3, 4, 6, 3}};
    case 50:
      return Stages{{3, 4, 6, 3}, true};
    case 101:
      return Stages{{3, 4, 23, 3}, true};
    case 152:
      return Stages{{3, 8, 36, 3}, true};
    default:
      return std::nullopt;
  }
}

struct BlockShape {
  int64_t in, width, stride;
  std::string shortcut;                     // as in ResNetConfig
  std::span<const int64_t> inner_channels;  // inner channels of this block
};

// ResidualBlock is a residual block, whose inner channels only its own convolutions read.
class ResidualBlock : public nn::Layer {
 public:
  using Layer::Layer;
  virtual std::vector<Variable> inner_weights() const = 0;
};

// Shortcut computes the tensor that a block adds to its result: the block's input if the shape
// stays, else a convolution of the input, or every stride-th pixel of it with channels of zeros.
class Shortcut {
 public:
  Shortcut(nn::Module& block, const BlockShape& shape, int64_t out)
      : stride_(shape.stride), new_channels_(out - shape.in) {
    if (shape.shortcut == "zeros_around") channels_before_ = new_channels_ / 2;
    if (shape.shortcut != "projection" || (stride_ == 1 && new_channels_ == 0)) return;
    projection_ = std::make_unique<nn::Sequential>(block, "downsample");
    projection_->add<nn::Conv2d>(shape.in, out, 1, conv_options(1, out, stride_));
    projection_->add<nn::BatchNorm>(out);
  }
  Tensor operator()(const Tensor& x) const {
    if (projection_) return (*projection_)(x);
    if (stride_ == 1) return x;
    Tensor y = slice(slice(x, 2, 0, x.dim(2), stride_), 3, 0, x.dim(3), stride_);
    return pad(y, {0, channels_before_, 0, 0}, {0, new_channels_ - channels_before_, 0, 0});
  }

 private:
  std::unique_ptr<nn::Sequential> projection_;
  int64_t stride_, new_channels_, channels_before_ = 0;
};

// BasicBlock computes relu(bn2(conv2(relu(bn1(conv1(x))))) + shortcut(x)).
class BasicBlock : public ResidualBlock {
 public:
  static constexpr int64_t expansion = 1;
  static constexpr size_t inner = 1;
  BasicBlock(nn::Module& parent, std::string name, const BlockShape& shape)
      : ResidualBlock(parent, std::move(name)),
        conv1_(*this, "conv1", shape.in, shape.inner_channels[0], 3,
               conv_options(3, shape.inner_channels[0], shape.stride)),
        bn1_(*this, "bn1", shape.inner_channels[0]),
        conv2_(*this, "conv2", shape.inner_channels[0], shape.width, 3,
               conv_options(3, shape.width, 1)),
        bn2_(*this, "bn2", shape.width),
        shortcut_(*this, shape, shape.width) {}
  std::vector<Variable> inner_weights() const override { return {conv1_.weight}; }

 protected:
  Tensor forward(const Tensor& x) const override {
    Tensor y = bn2_(conv2_(relu(bn1_(conv1_(x)))));
    return relu(y + shortcut_(x));
  }

 private:
  nn::Conv2d conv1_;
  nn::BatchNorm bn1_;
  nn::Conv2d conv2_;
  nn::BatchNorm bn2_;
  Shortcut shortcut_;
};

// Bottleneck computes relu(bn3(conv3(relu(bn2(conv2(relu(bn1(conv1(x)))))))) + shortcut(x));
// kernels are 1x1, 3x3 and 1x1, the last to four times the width.
class Bottleneck : public ResidualBlock {
 public:
  static constexpr int64_t expansion = 4;
  static constexpr size_t inner = 2;
  Bottleneck(nn::Module& parent, std::string name, const BlockShape& shape)
      : ResidualBlock(parent, std::move(name)),
        conv1_(*this, "conv1", shape.in, shape.inner_channels[0], 1,
               conv_options(1, shape.inner_channels[0], 1)),
        bn1_(*this, "bn1", shape.inner_channels[0]),
        conv2_(*this, "conv2", shape.inner_channels[0], shape.inner_channels[1], 3,
               conv_options(3, shape.inner_channels[1], shape.stride)),
        bn2_(*this, "bn2", shape.inner_channels[1]),
        conv3_(*this, "conv3", shape.inner_channels[1], expansion * shape.width, 1,
               conv_options(1, expansion * shape.width, 1)),
        bn3_(*this, "bn3", expansion * shape.width),
        shortcut_(*this, shape, expansion * shape.width) {}
  std::vector<Variable> inner_weights() const override { return {conv1_.weight, conv2_.weight}; }

 protected:
  Tensor forward(const Tensor& x) const override {
    Tensor y = relu(bn2_(conv2_(relu(bn1_(conv1_(x))))));
    return relu(bn3_(conv3_(y)) + shortcut_(x));
  }

 private:
  nn::Conv2d conv1_;
  nn::BatchNorm bn1_;
  nn::Conv2d conv2_;
  nn::BatchNorm bn2_;
  nn::Conv2d conv3_;
  nn::BatchNorm bn3_;
  Shortcut shortcut_;
};

// Adds `count` blocks, the first with the stride; returns the output channels of the last. `inner`,
// if not empty, has the inner channels of these blocks and of all later ones; the channels of these
// blocks are removed from it.
template <class B>
int64_t add_blocks(nn::Sequential& stage, int64_t count, BlockShape shape,
                   std::span<const int64_t>& inner) {
  const std::vector<int64_t> usual(B::inner, shape.width);
  for (int64_t i = 0; i < count; ++i) {
    shape.inner_channels = inner.empty() ? usual : inner.first(B::inner);
    if (!inner.empty()) inner = inner.subspan(B::inner);
    stage.add<B>(shape);
    shape.in = B::expansion * shape.width;
    shape.stride = 1;
  }
  return shape.in;
}

std::vector<std::unique_ptr<nn::Sequential>> make_stages(nn::Module& net,
                                                         const ResNetConfig& config) {
  std::optional<Stages> stages = stages_of(config);
  WEFT_CHECK(stages, "[resnet] no form \"{}\" of depth {}.", config.form, config.depth);
  std::vector<std::unique_ptr<nn::Sequential>> made;
  int64_t channels = config.hidden_size;
  std::span<const int64_t> inner = config.inner_channels;
  for (size_t i = 0; i < stages->blocks.size(); ++i) {
    BlockShape shape{.in = channels,
                     .width = config.hidden_size << i,
                     .stride = i == 0 ? 1 : 2,
                     .shortcut = config.form == "imagenet" ? "projection" : config.shortcut,
                     .inner_channels = {}};
    made.push_back(std::make_unique<nn::Sequential>(net, "layer" + std::to_string(i + 1)));
    const auto add = stages->bottleneck ? add_blocks<Bottleneck> : add_blocks<BasicBlock>;
    channels = add(*made.back(), stages->blocks[i], shape, inner);
  }
  return made;
}

int64_t final_channels(const ResNetConfig& config) {
  Stages stages = stages_of(config).value();
  int64_t width = config.hidden_size << (stages.blocks.size() - 1);
  return stages.bottleneck ? Bottleneck::expansion * width : width;
}

nn::Conv2d stem(nn::Module& net, const ResNetConfig& config) {
  bool small = config.form == "cifar";
  int64_t kernel = small ? 3 : 7;
  return {net,
          "conv1",
          config.num_channels,
          config.hidden_size,
          kernel,
          conv_options(kernel, config.hidden_size, small ? 1 : 2)};
}
}  // namespace

ResNetConfig ResNetConfig::read(const nn::Options& config, const TaskShape& task) {
  check_task("resnet", InputKind::images, task);
  nn::OptionReader reader(config, "resnet");
  ResNetConfig c;
  reader.text("model_type", "resnet");
  c.form = reader.choice("form", c.form, forms);
  bool small = c.form == "cifar";
  if (small)
    c.shortcut = reader.choice("shortcut", c.shortcut, shortcuts);
  else
    c.shortcut = reader.choice("shortcut", "projection", std::span(shortcuts).last(1));
  c.depth = reader.layers("depth", small ? 20 : 50, 8);
  if (!stages_of(c))
    throw Error(ErrorKind::usage, "[resnet] depth must be {}. Got {}.",
                small ? "6 n + 2 (20, 32, 44, 56, ...)" : "18, 34, 50, 101 or 152", c.depth);
  c.num_channels = reader.integer("num_channels", task.input[0]);
  c.num_labels = reader.integer("num_labels", task.classes);
  c.hidden_size = reader.integer("hidden_size", small ? 16 : 64);
  c.inner_channels = reader.integers("inner_channels", std::vector<int64_t>());
  reader.finish();
  const Stages stages = *stages_of(c);
  const auto blocks = std::accumulate(stages.blocks.begin(), stages.blocks.end(), int64_t{0});
  const int64_t wanted = blocks * (stages.bottleneck ? 2 : 1);
  if (!c.inner_channels.empty() && std::ssize(c.inner_channels) != wanted)
    throw Error(ErrorKind::usage,
                "[resnet] inner_channels lists {} widths of the {} blocks of depth {}. Got {}.",
                wanted, blocks, c.depth, c.inner_channels.size());
  return c;
}

nn::Options ResNetConfig::options() const {
  nn::Options options{{"model_type", std::string("resnet")},
                      {"form", form},
                      {"depth", depth},
                      {"num_channels", num_channels},
                      {"num_labels", num_labels},
                      {"hidden_size", hidden_size}};
  // Defaults are left out, as older checkpoints do not have these options.
  if (form == "cifar" && shortcut != ResNetConfig().shortcut) options.set("shortcut", shortcut);
  if (!inner_channels.empty()) options.set("inner_channels", inner_channels);
  return options;
}

ResNet::ResNet(const ResNetConfig& config)
    : Model(InputKind::images, config.options()),
      conv1_(stem(*this, config)),
      bn1_(*this, "bn1", config.hidden_size),
      stages_(make_stages(*this, config)),
      fc_(*this, "fc", final_channels(config), config.num_labels),
      pooled_(config.form == "imagenet") {}

std::vector<Variable> ResNet::inner_weights() const {
  std::vector<Variable> weights;
  for (const auto& stage : stages_)
    for (size_t i = 0; i < stage->size(); ++i)
      for (const Variable& weight : dynamic_cast<const ResidualBlock&>((*stage)[i]).inner_weights())
        weights.push_back(weight);
  return weights;
}
nn::Options ResNet::config_with(std::span<const int64_t> channels) const {
  nn::Options options = config();
  options.set("inner_channels", std::vector<int64_t>(channels.begin(), channels.end()));
  return options;
}

Tensor ResNet::forward(const Tensor& x) const {
  Tensor y = relu(bn1_(conv1_(x)));
  if (pooled_) y = max_pool(y, {.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}});
  for (const auto& stage : stages_) y = (*stage)(y);
  return fc_(mean(y, {.axes = {2, 3}}));
}

}  // namespace weft::models
