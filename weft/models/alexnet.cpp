#include "weft/models/alexnet.h"

#include "weft/models/zoo.h"

namespace weft::models {
namespace {
constexpr int64_t least_side = 63;  // leaves one pixel for the last pool
constexpr int64_t side = 6;         // side of the last pool's result, for images of 224
constexpr int64_t channels = 256;   // channels of that result
}  // namespace

AlexNetConfig AlexNetConfig::read(const nn::Options& config, const TaskShape& task) {
  check_task("alexnet", InputKind::images, task);
  if (std::min(task.input[1], task.input[2]) < least_side)
    throw Error(ErrorKind::usage, "[alexnet] images must be at least {0} x {0}. Got {1} x {2}.",
                least_side, task.input[1], task.input[2]);
  nn::OptionReader reader(config, "alexnet");
  AlexNetConfig c;
  reader.text("model_type", "alexnet");
  c.num_channels = reader.integer("num_channels", task.input[0]);
  c.num_labels = reader.integer("num_labels", task.classes);
  c.hidden_size = reader.integer("hidden_size", c.hidden_size);
  c.dropout = reader.number("dropout", c.dropout, 0, 1);
  reader.finish();
  return c;
}

nn::Options AlexNetConfig::options() const {
  return {{"model_type", std::string("alexnet")},
          {"num_channels", num_channels},
          {"num_labels", num_labels},
          {"hidden_size", hidden_size},
          {"dropout", dropout}};
}

AlexNet::AlexNet(const AlexNetConfig& config)
    : Model(InputKind::images, config.options()),
      features_(*this, "features"),
      classifier_(*this, "classifier") {
  auto conv = [this](int64_t in, int64_t out, int64_t kernel, int64_t stride, int64_t padding) {
    features_.add<nn::Conv2d>(in, out, kernel,
                              nn::ConvLayerOptions{.stride = stride, .padding = padding});
    features_.add<nn::Activation>("relu");
  };
  auto pool = [this] { features_.add<nn::MaxPool2d>(3, nn::PoolLayerOptions{.stride = 2}); };
  conv(config.num_channels, 64, 11, 4, 2);
  pool();
  conv(64, 192, 5, 1, 2);
  pool();
  conv(192, 384, 3, 1, 1);
  conv(384, channels, 3, 1, 1);
  conv(channels, channels, 3, 1, 1);
  pool();
  int64_t width = channels * side * side;
  for (int i = 0; i < 2; ++i) {
    classifier_.add<nn::Dropout>(config.dropout);
    classifier_.add<nn::Linear>(width, config.hidden_size);
    classifier_.add<nn::Activation>("relu");
    width = config.hidden_size;
  }
  classifier_.add<nn::Linear>(width, config.num_labels);
}

Tensor AlexNet::forward(const Tensor& x) const {
  return classifier_(flatten(adaptive_avg_pool(features_(x), {side, side}), 1));
}

}  // namespace weft::models
