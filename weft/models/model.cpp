#include "weft/models/model.h"

#include <span>

#include <fmt/format.h>

#include "weft/io/safetensors.h"
#include "weft/models/zoo.h"

namespace weft {
namespace {
class LayersModel : public Model {
 public:
  LayersModel(std::span<const nn::LayerSpec> layers, const TaskShape& task)
      : Model(task.kind, {{"model_type", std::string("layers")}}) {
    for (const nn::LayerSpec& layer : layers) places_.push_back(layer.where);
    Type result = nn::add_layers(layers_, layers, task.batch(1));
    Shape expected =
        task.labels_tokens() ? Shape{1, task.input[0], task.classes} : Shape{1, task.classes};
    if (!(result.shape == expected))
      throw Error(ErrorKind::usage,
                  "[layers] the last layer must yield {} for one sample of {} classes. Got {}.",
                  to_string(expected), task.classes, to_string(result.shape));
  }

 protected:
  Tensor forward(const Tensor& x) const override {
    Tensor y = x;
    for (size_t i = 0; i < layers_.size(); ++i) y = layers_[i](Arg(y, places_[i]));
    return y;
  }

 private:
  nn::Sequential layers_{*this, ""};
  std::vector<UserLocation> places_;  // the recipe's line of each layer
};
}  // namespace

std::string_view name(InputKind kind) {
  constexpr std::string_view names[] = {"features", "images", "tokens"};
  return names[static_cast<size_t>(kind)];
}

Shape of_sample(const Shape& batch) {
  return Shape(std::span(batch.begin(), batch.end()).subspan(batch.empty() ? 0 : 1));
}

Type TaskShape::batch(int64_t size) const {
  Type type{kind == InputKind::tokens ? DType::i64 : nn::parameter_dtype(), {size}};
  if (packed) type.shape.push_back(2);
  for (int64_t extent : input) type.shape.push_back(extent);
  return type;
}

Model::Model(InputKind input_kind, nn::Options config)
    : input_kind_(input_kind), config_(std::move(config)) {}
Model::~Model() = default;

int64_t TokenCache::bytes() const {
  int64_t sum = 0;
  for (const Variable& variable : variables) sum += static_cast<int64_t>(variable.type().bytes());
  return sum;
}
void Cached::begin(const TokenCache&, int64_t) const {}

std::vector<io::NamedBytes> Model::saved() const { return io::bytes_of(io::state_of(*this)); }

nn::Options Model::config_with(std::span<const int64_t> channels) const {
  WEFT_ASSERT(channels.empty(),
              "a model with inner weights says how their channels become its config");
  return config_;
}

Registry<ModelEntry>& registry::models() {
  static Registry<ModelEntry> models("model", "model", weft::models::zoo());
  return models;
}

std::unique_ptr<Model> make_model(std::string_view name, const nn::Options& config,
                                  const TaskShape& task) {
  return registry::models().get(name).make(config, task);
}

std::unique_ptr<Model> make_layers_model(std::span<const nn::LayerSpec> layers,
                                         const TaskShape& task) {
  return std::make_unique<LayersModel>(layers, task);
}

}  // namespace weft
