#include "tests/models/training.h"

#include "tests/support/values.h"
#include "weft/optim/registry.h"
#include "weft/tensor/trace.h"

namespace weft::testing {
namespace {
TaskShape task_of(const std::string& model) {
  if (model == "lstm" || model == "gru") return {InputKind::tokens, {8}, 65};
  if (model == "gpt" || model == "bert" || model == "llama") return {InputKind::tokens, {64}, 65};
  if (model == "mlp" || model == "perceptron") return {InputKind::features, {784}, 10};
  if (model.starts_with("resnet")) return {InputKind::images, {3, 32, 32}, 10};
  if (model == "alexnet") return {InputKind::images, {3, 64, 64}, 10};
  return {InputKind::images, {1, 28, 28}, 10};
}
nn::Options config_of(const std::string& model) {
  if (model == "mlp") return {{"hidden_sizes", std::vector<int64_t>{80}}};
  if (model == "lstm" || model == "gru") return {{"hidden_size", int64_t{64}}};
  if (model == "bert")
    return {{"hidden_size", int64_t{64}},
            {"num_hidden_layers", int64_t{2}},
            {"num_attention_heads", int64_t{2}},
            {"intermediate_size", int64_t{128}},
            {"hidden_dropout_prob", 0.0}};
  if (model == "llama")
    return {{"hidden_size", int64_t{64}},
            {"num_hidden_layers", int64_t{2}},
            {"num_attention_heads", int64_t{4}},
            {"num_key_value_heads", int64_t{2}},
            {"intermediate_size", int64_t{128}}};
  if (model != "gpt") return {};
  return {{"hidden_size", int64_t{128}},
          {"num_hidden_layers", int64_t{4}},
          {"num_attention_heads", int64_t{4}},
          {"bias", false},
          {"hidden_act", std::string("gelu")}};
}
std::unique_ptr<Model> model_of(const std::string& model) {
  const std::vector<nn::LayerSpec> one_layer = {{"linear", {{"out_features", int64_t{10}}}}};
  if (model == "perceptron") return make_layers_model(one_layer, task_of(model));
  return make_model(model, config_of(model), task_of(model));
}
std::unique_ptr<optim::Optimizer> optimizer_of(const std::string& name, const Model& model) {
  optim::OptimizerSettings settings{.lr = 1e-3, .weight_decay = 0.1};
  if (name == "sgd") settings.momentum = 0.9;
  return optim::make_optimizer(name, model.parameters(), settings);
}
}  // namespace

Training::Training(const std::string& model, const std::string& optimizer, int64_t batch,
                   const StepOptions& options)
    : model_(model_of(model)),
      optimizer_(optimizer_of(optimizer, *model_)),
      compiled_([this](std::span<const Tensor> in) { return loss_and_update(in); }, options) {
  TaskShape task = task_of(model);
  Type input = task.batch(batch);
  Shape labels = task.kind == InputKind::tokens ? input.shape : Shape{batch};
  Random random(1);
  double high = is_float(input.dtype) ? 1 : static_cast<double>(task.classes - 1);
  batch_ = {random_values(input, 0, high, random),
            random_values({DType::i64, labels}, 0, static_cast<double>(task.classes - 1), random)};
}

std::vector<Tensor> Training::loss_and_update(std::span<const Tensor> in) {
  Tensor loss = cross_entropy((*model_)(in[0]), in[1]);
  optimizer_->step(grad(loss, optimizer_->parameters()));
  return {loss};
}

std::vector<Type> Training::types() const { return {batch_[0].type(), batch_[1].type()}; }

Executable& Training::executable() { return compiled_.prepare(types()); }

Graph Training::graph() {
  return detail::capture([this](std::span<const Tensor> in) { return loss_and_update(in); },
                         types(), Mode::train);
}

}  // namespace weft::testing
