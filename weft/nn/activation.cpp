#include "weft/base/error.h"
#include "weft/nn/layers.h"
#include "weft/nn/options.h"
#include "weft/tensor/compile.h"

namespace weft::nn {
namespace {
struct NamedActivation {
  std::string_view name;
  ActivationFunction function;
};
constexpr NamedActivation named_activations[] = {
    {"relu", [](const Tensor& x) { return relu(x); }},
    {"relu6", [](const Tensor& x) { return relu6(x); }},
    {"leaky_relu", [](const Tensor& x) { return leaky_relu(x); }},
    {"elu", [](const Tensor& x) { return elu(x); }},
    {"selu", [](const Tensor& x) { return selu(x); }},
    {"celu", [](const Tensor& x) { return celu(x); }},
    {"gelu", [](const Tensor& x) { return gelu(x); }},
    {"gelu_tanh", [](const Tensor& x) { return gelu_tanh(x); }},
    {"gelu_new", [](const Tensor& x) { return gelu_tanh(x); }},
    {"silu", [](const Tensor& x) { return silu(x); }},
    {"mish", [](const Tensor& x) { return mish(x); }},
    {"sigmoid", [](const Tensor& x) { return sigmoid(x); }},
    {"log_sigmoid", [](const Tensor& x) { return log_sigmoid(x); }},
    {"tanh", [](const Tensor& x) { return tanh(x); }},
    {"softplus", [](const Tensor& x) { return softplus(x); }},
    {"hardswish", [](const Tensor& x) { return hardswish(x); }},
    {"hardsigmoid", [](const Tensor& x) { return hardsigmoid(x); }},
    {"hardtanh", [](const Tensor& x) { return hardtanh(x); }},
    {"softsign", [](const Tensor& x) { return softsign(x); }},
    {"softmax", [](const Tensor& x) { return softmax(x); }},
};
// These names are in Hugging Face's config.json, and are no layers of weft's.
constexpr NamedActivation published_activations[] = {
    {"gelu_pytorch_tanh", [](const Tensor& x) { return gelu_tanh(x); }},
    {"gelu_fast", [](const Tensor& x) { return gelu_tanh(x); }},
    {"gelu_python", [](const Tensor& x) { return gelu(x); }},
    {"quick_gelu", [](const Tensor& x) { return x * sigmoid(1.702 * x); }},
    {"swish", [](const Tensor& x) { return silu(x); }},
    {"linear", [](const Tensor& x) { return x; }},
};
}  // namespace

std::vector<std::string_view> activation_names() {
  std::vector<std::string_view> names;
  for (const NamedActivation& entry : named_activations) names.push_back(entry.name);
  return names;
}

ActivationFunction activation_function(std::string_view name, std::string_view owner) {
  for (const NamedActivation& entry : named_activations)
    if (entry.name == name) return entry.function;
  for (const NamedActivation& entry : published_activations)
    if (entry.name == name) return entry.function;
  throw Error(ErrorKind::usage, "[{}] unknown activation \"{}\". Known: {}.", owner, name,
              join(activation_names()));
}

Activation::Activation(Module& parent, std::string name, std::string_view function)
    : Layer(parent, std::move(name)), function_(activation_function(function, "activation")) {}
Tensor Activation::forward(const Tensor& x) const { return function_(x); }

Dropout::Dropout(Module& parent, std::string name, double probability)
    : Layer(parent, std::move(name)), probability_(probability) {
  WEFT_CHECK(probability >= 0 && probability <= 1,
             "[dropout] probability must be between 0 and 1. Got {}.", probability);
}
Tensor Dropout::forward(const Tensor& x) const { return dropout(x, probability_); }

Tensor Flatten::forward(const Tensor& x) const { return flatten(x, 1); }

}  // namespace weft::nn
