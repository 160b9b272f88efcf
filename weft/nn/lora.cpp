#include "weft/nn/lora.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "weft/base/error.h"
#include "weft/base/text/pattern.h"
#include "weft/base/text/suggest.h"
#include "weft/tensor/compile.h"

namespace weft::nn {
namespace {
constexpr std::string_view all_linear = "all-linear";

// The weight is [out, in], or [in, out] if transposed.
int64_t out_features(const Linear& layer) { return layer.weight.dim(layer.transposed() ? 1 : 0); }
Tensor row_norms(const Tensor& matrix) { return norm(matrix, {.axes = {1}}); }

void collect_linear(const Module& module, std::vector<Linear*>& into) {
  for (Module* child : module.children()) {
    auto* layer = dynamic_cast<Linear*>(child);
    if (layer == nullptr)
      collect_linear(*child, into);
    else
      into.push_back(layer);
  }
}

bool is_target(const std::string& path, std::string_view target) {
  return matches(path, target) || matches(path, "*." + std::string(target));
}
// Returns the last `count` names of a path.
std::string end_of(const std::string& path, int64_t count) {
  size_t begin = path.size() + 1;
  for (; count > 0 && begin != 0; --count)
    begin = begin < 2 ? 0 : path.rfind('.', begin - 2) + 1;  // npos + 1 is 0
  return path.substr(begin);
}
// A head maps hidden states to the vocabulary or the labels. It is a direct child of the whole
// model.
bool is_head(const Linear& layer) { return layer.path() == layer.name(); }
}  // namespace

std::vector<Linear*> linear_layers(const Module& model) {
  std::vector<Linear*> layers;
  collect_linear(model, layers);
  return layers;
}

double LoraOptions::scale() const {
  return lora_alpha / (use_rslora ? std::sqrt(static_cast<double>(r)) : static_cast<double>(r));
}

struct Lora::Magnitude : Module {
  Magnitude(Linear& layer)
      : Module(layer, ""),
        vector(parameter("lora_magnitude_vector", {out_features(layer)}, Init::constant(0))) {
    if (initializes_parameters()) vector.assign(row_norms(layer.matrix()));
  }
  Variable vector;
};

Lora::Lora(Linear& layer, const LoraOptions& options)
    : options_(options),
      a_(layer, "lora_A", layer.in_features(), options.r, {.bias = false}),
      b_(layer, "lora_B", options.r, out_features(layer),
         {.bias = false, .init = Init::constant(0)}) {
  if (options.use_dora) magnitude_ = std::make_unique<Magnitude>(layer);
}
Lora::~Lora() = default;

Tensor Lora::product() const {
  return matmul(b_.weight.value(), a_.weight.value()) * options_.scale();
}

Tensor Lora::adapted(const Linear& layer, const Tensor& x, const Tensor& y) const {
  const bool drops = options_.lora_dropout > 0 && current_mode() == Mode::train;
  const Tensor read = drops ? dropout(x, options_.lora_dropout) : x;
  const Tensor added = b_(a_(read)) * options_.scale();
  if (magnitude_ == nullptr) return y + added;
  // The norms are constants to the gradient, as in section 4.3 of the paper.
  const Tensor matrix = layer.matrix();
  const Tensor norms = stop_gradient(row_norms(matrix + product()));
  const Tensor factor = magnitude_->vector.value() / norms;
  if (drops) return y + (factor - 1) * linear(read, matrix) + factor * added;
  const Tensor without_bias = layer.bias.defined() ? y - layer.bias.value() : y;
  return y + (factor - 1) * without_bias + factor * added;
}

// Computes in the accumulator's type, so that narrow weights are rounded once.
Tensor Lora::merged(const Linear& layer) const {
  const DType dtype = layer.weight.dtype(), wide = accumulator(dtype);
  const auto widened = [&](const Variable& x) { return cast(x.value(), wide); };
  Tensor sum = cast(layer.matrix(), wide) +
               matmul(widened(b_.weight), widened(a_.weight)) * options_.scale();
  if (magnitude_ != nullptr) sum = sum * unsqueeze(widened(magnitude_->vector) / row_norms(sum), 1);
  return cast(sum, dtype);
}

std::vector<std::string> add_lora(Module& model, std::span<const std::string> targets,
                                  const LoraOptions& options) {
  WEFT_CHECK(options.r > 0 && options.lora_dropout >= 0 && options.lora_dropout < 1,
             "[lora] r is at least 1 and lora_dropout from 0 to below 1. Got {} and {}.", options.r,
             options.lora_dropout);
  const std::vector<Linear*> layers = linear_layers(model);
  std::vector<Linear*> chosen;
  for (const std::string& target : targets) {
    bool any = false;
    for (Linear* layer : layers) {
      if (target == all_linear ? is_head(*layer) : !is_target(layer->path(), target)) continue;
      any = true;
      if (std::ranges::find(chosen, layer) == chosen.end()) chosen.push_back(layer);
    }
    if (any) continue;
    std::vector<std::string> names, paths;
    for (const Linear* layer : layers) {
      if (std::ranges::find(names, layer->name()) == names.end()) names.push_back(layer->name());
      paths.push_back(end_of(layer->path(), std::ranges::count(target, '.') + 1));
    }
    throw Error(
        ErrorKind::usage,
        "[lora] no linear layer of the model has a path that ends with \"{}\".{} Their last "
        "names are {}.",
        target, did_you_mean(target, paths), fmt::join(names, ", "));
  }
  model.freeze();
  std::vector<std::string> paths;
  paths.reserve(chosen.size());
  for (Linear* layer : chosen) {
    WEFT_CHECK(layer->adapter() == nullptr, "[lora] \"{}\" has an adapter.", layer->path());
    layer->set_adapter(std::make_unique<Lora>(*layer, options));
    paths.push_back(layer->path());
  }
  return paths;
}

void merge_lora(Module& model) {
  for (Linear* layer : linear_layers(model)) {
    if (layer->adapter() == nullptr) continue;
    WEFT_CHECK(layer->blocks() == nullptr,
               "[lora] the weight of \"{}\" is in blocks, to which no adapter can be added.",
               layer->path());
    const Tensor merged = layer->adapter()->merged(*layer);
    layer->weight.assign(layer->transposed() ? transpose(merged) : merged);
    eval(std::vector{layer->weight.value()});
    layer->set_adapter(nullptr);
  }
}

std::vector<const Linear*> adapted_layers(const Module& model) {
  std::vector<const Linear*> adapted;
  for (const Linear* layer : linear_layers(model))
    if (layer->adapter() != nullptr) adapted.push_back(layer);
  return adapted;
}

std::vector<NamedVariable> lora_parameters(const Module& model) {
  std::vector<NamedVariable> all = model.named_parameters();
  std::erase_if(all, [](const NamedVariable& entry) {
    return entry.name.find(".lora_") == std::string::npos;
  });
  return all;
}

}  // namespace weft::nn
