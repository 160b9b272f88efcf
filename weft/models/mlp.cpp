#include "weft/models/mlp.h"

#include "weft/models/zoo.h"

namespace weft::models {

MlpConfig MlpConfig::read(const nn::Options& config, const TaskShape& task) {
  if (task.kind == InputKind::images)
    check_task("mlp", InputKind::images, task);
  else
    check_task("mlp", InputKind::features, task);
  nn::OptionReader reader(config, "mlp");
  MlpConfig c;
  reader.text("model_type", "mlp");
  c.input = task.kind;
  c.num_features = reader.integer("num_features", element_count(task.input));
  c.num_labels = reader.integer("num_labels", task.classes);
  c.hidden_sizes = reader.integers("hidden_sizes", c.hidden_sizes);
  c.hidden_act = reader.text("hidden_act", c.hidden_act);
  c.dropout = reader.number("dropout", c.dropout, 0, 1);
  reader.finish();
  return c;
}

nn::Options MlpConfig::options() const {
  return {{"model_type", std::string("mlp")}, {"num_features", num_features},
          {"num_labels", num_labels},         {"hidden_sizes", hidden_sizes},
          {"hidden_act", hidden_act},         {"dropout", dropout}};
}

Mlp::Mlp(const MlpConfig& config)
    : Model(config.input, config.options()),
      activation_(nn::activation_function(config.hidden_act, "mlp")),
      dropout_(*this, "dropout", config.dropout) {
  int64_t width = config.num_features;
  auto add = [&](int64_t out) {
    std::string name = "fc" + std::to_string(layers_.size() + 1);
    layers_.push_back(std::make_unique<nn::Linear>(*this, name, width, out));
    width = out;
  };
  for (int64_t size : config.hidden_sizes) add(size);
  add(config.num_labels);
}

std::vector<Variable> Mlp::inner_weights() const {
  std::vector<Variable> weights;
  for (size_t i = 0; i + 1 < layers_.size(); ++i) weights.push_back(layers_[i]->weight);
  return weights;
}
nn::Options Mlp::config_with(std::span<const int64_t> channels) const {
  nn::Options options = config();
  options.set("hidden_sizes", std::vector<int64_t>(channels.begin(), channels.end()));
  return options;
}

Tensor Mlp::forward(const Tensor& x) const {
  Tensor y = x.rank() > 2 ? flatten(x, 1) : x;
  for (size_t i = 0; i + 1 < layers_.size(); ++i) y = dropout_(activation_((*layers_[i])(y)));
  return (*layers_.back())(y);
}

}  // namespace weft::models
