#include "weft/nn/layers.h"

namespace weft::nn {

Linear::Linear(Module& parent, std::string name, int64_t in_features, int64_t out_features,
               const LinearOptions& options)
    : Layer(parent, std::move(name)),
      weight(parameter("weight", {out_features, in_features},
                       options.init.value_or(Init::fan_in(in_features)))) {
  if (options.bias)
    bias = parameter("bias", {out_features},
                     options.init ? Init::constant(0) : Init::fan_in(in_features));
}

Tensor Linear::forward(const Tensor& x) const {
  WEFT_CHECK(x.rank() > 0 && x.dim(-1) == weight.shape()[1],
             "[linear] \"{}\" takes {} features in the last axis. Got {}.", path(),
             weight.shape()[1], to_string(x.type()));
  return linear(x, weight.value(), bias.defined() ? bias.value() : Tensor());
}

Embedding::Embedding(Module& parent, std::string name, int64_t count, int64_t dimension,
                     const Init& init)
    : Layer(parent, std::move(name)), weight(parameter("weight", {count, dimension}, init)) {}

Tensor Embedding::forward(const Tensor& indices) const {
  WEFT_CHECK(is_integer(indices.dtype()), "[embedding] \"{}\" takes integers. Got {}.", path(),
             to_string(indices.type()));
  return embedding(indices, weight.value());
}

}  // namespace weft::nn
