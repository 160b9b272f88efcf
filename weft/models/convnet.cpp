#include "weft/models/convnet.h"

#include "weft/models/zoo.h"

namespace weft::models {
namespace {
constexpr int64_t smallest_side = 12;  // two 5x5 convolutions and two pools leave one pixel

// Reads the image options that every convolutional config has.
template <class Config>
void read_image(Config& config, nn::OptionReader& reader, const TaskShape& task) {
  reader.text("model_type", "");
  config.num_channels = reader.integer("num_channels", task.input[0]);
  config.image_height = reader.integer("image_height", task.input[1], smallest_side);
  config.image_width = reader.integer("image_width", task.input[2], smallest_side);
  config.num_labels = reader.integer("num_labels", task.classes);
}
template <class Config>
nn::Options image_options(const Config& config, const char* model_type) {
  return {{"model_type", std::string(model_type)},
          {"num_channels", config.num_channels},
          {"image_height", config.image_height},
          {"image_width", config.image_width},
          {"num_labels", config.num_labels}};
}

int64_t lenet_padding(const LeNet5Config& config) {
  return std::min(config.image_height, config.image_width) < 32 ? 2 : 0;
}
int64_t lenet_side(int64_t side, int64_t padding) { return ((side + 2 * padding - 4) / 2 - 4) / 2; }
int64_t lenet_features(const LeNet5Config& config) {
  int64_t padding = lenet_padding(config);
  return 16 * lenet_side(config.image_height, padding) * lenet_side(config.image_width, padding);
}
}  // namespace

CnnConfig CnnConfig::read(const nn::Options& config, const TaskShape& task) {
  check_task("cnn", InputKind::images, task);
  nn::OptionReader reader(config, "cnn");
  CnnConfig c;
  read_image(c, reader, task);
  c.conv_channels = reader.integers("conv_channels", c.conv_channels);
  if (c.conv_channels.size() != 2)
    throw Error(ErrorKind::usage, "[cnn] conv_channels must list two widths. Got {}.",
                c.conv_channels.size());
  c.hidden_size = reader.integer("hidden_size", c.hidden_size);
  c.dropout = reader.number("dropout", c.dropout, 0, 1);
  reader.finish();
  return c;
}

nn::Options CnnConfig::options() const {
  nn::Options options = image_options(*this, "cnn");
  options.set("conv_channels", conv_channels);
  options.set("hidden_size", hidden_size);
  options.set("dropout", dropout);
  return options;
}

Cnn::Cnn(const CnnConfig& config)
    : Model(InputKind::images, config.options()),
      conv1_(*this, "conv1", config.num_channels, config.conv_channels[0], 3, {.padding = 1}),
      conv2_(*this, "conv2", config.conv_channels[0], config.conv_channels[1], 3, {.padding = 1}),
      fc1_(*this, "fc1",
           config.conv_channels[1] * (config.image_height / 4) * (config.image_width / 4),
           config.hidden_size),
      fc2_(*this, "fc2", config.hidden_size, config.num_labels),
      dropout_(*this, "dropout", config.dropout) {}

std::vector<Variable> Cnn::inner_weights() const {
  return {conv1_.weight, conv2_.weight, fc1_.weight};
}
nn::Options Cnn::config_with(std::span<const int64_t> channels) const {
  nn::Options options = config();
  options.set("conv_channels", std::vector<int64_t>{channels[0], channels[1]});
  options.set("hidden_size", channels[2]);
  return options;
}

Tensor Cnn::forward(const Tensor& x) const {
  PoolOptions pool{.kernel = {2, 2}};
  Tensor y = max_pool(relu(conv1_(x)), pool);
  y = max_pool(relu(conv2_(y)), pool);
  return fc2_(dropout_(relu(fc1_(flatten(y, 1)))));
}

LeNet5Config LeNet5Config::read(const nn::Options& config, const TaskShape& task) {
  check_task("lenet5", InputKind::images, task);
  nn::OptionReader reader(config, "lenet5");
  LeNet5Config c;
  read_image(c, reader, task);
  c.hidden_act = reader.text("hidden_act", c.hidden_act);
  reader.finish();
  return c;
}

nn::Options LeNet5Config::options() const {
  nn::Options options = image_options(*this, "lenet5");
  options.set("hidden_act", hidden_act);
  return options;
}

LeNet5::LeNet5(const LeNet5Config& config)
    : Model(InputKind::images, config.options()),
      activation_(nn::activation_function(config.hidden_act, "lenet5")),
      conv1_(*this, "conv1", config.num_channels, 6, 5, {.padding = lenet_padding(config)}),
      conv2_(*this, "conv2", 6, 16, 5),
      fc1_(*this, "fc1", lenet_features(config), 120),
      fc2_(*this, "fc2", 120, 84),
      fc3_(*this, "fc3", 84, config.num_labels) {}

Tensor LeNet5::forward(const Tensor& x) const {
  PoolOptions pool{.kernel = {2, 2}};
  Tensor y = avg_pool(activation_(conv1_(x)), pool);
  y = avg_pool(activation_(conv2_(y)), pool);
  return fc3_(activation_(fc2_(activation_(fc1_(flatten(y, 1))))));
}

}  // namespace weft::models
