#include <cmath>

#include "weft/nn/layers.h"

namespace weft::nn {

Rotary rotary(int64_t length, int64_t dimension, double theta, DType dtype) {
  WEFT_CHECK(dimension % 2 == 0, "[rotary] the width of a head must be even. Got {}.", dimension);
  int64_t half = dimension / 2;
  auto count = static_cast<size_t>(length * half);
  std::vector<double> cosines(count), sines(2 * count);
  for (int64_t position = 0; position < length; ++position)
    for (int64_t i = 0; i < half; ++i) {
      double part = static_cast<double>(i) / static_cast<double>(half);
      double angle = static_cast<double>(position) * std::pow(theta, -part);
      cosines[static_cast<size_t>(position * half + i)] = std::cos(angle);
      sines[static_cast<size_t>(2 * position * half + i)] = -std::sin(angle);
      sines[static_cast<size_t>((2 * position + 1) * half + i)] = std::sin(angle);
    }
  return {constant(cosines, {length, 1, half}, dtype), constant(sines, {length, 2, half}, dtype)};
}

Tensor rotate(const Tensor& x, const Rotary& by) {
  int64_t length = by.cos.dim(0), half = by.cos.dim(2);
  WEFT_CHECK(x.rank() == 4 && x.dim(2) == length && x.dim(3) == 2 * half,
             "[rotary] takes [batch, heads, {}, {}]. Got {}.", length, 2 * half,
             to_string(x.type()));
  // A flip instead of a concat of halves takes one kernel, which reads the other half in place.
  Tensor halves = reshape(x, {x.dim(0), x.dim(1), length, 2, half});
  return reshape(halves * by.cos + flip(halves, {3}) * by.sin, x.shape());
}

SelfAttention::SelfAttention(Module& parent, std::string name, int64_t width, int64_t heads,
                             const SelfAttentionOptions& options)
    : Layer(parent, std::move(name)),
      qkv(*this, options.qkv_name, width, 3 * width, {.bias = options.bias, .init = options.init}),
      out(*this, options.out_name, width, width, {.bias = options.bias, .init = options.out_init}),
      dropout_(*this, "dropout", options.dropout),
      heads_(heads),
      causal_(options.causal) {
  WEFT_CHECK(heads > 0 && width % heads == 0,
             "[attention] heads must divide the width. Got {} heads, width {}.", heads, width);
}

Tensor SelfAttention::forward(const Tensor& x) const {
  int64_t width = out.weight.shape()[0];
  WEFT_CHECK(x.rank() == 3 && x.dim(2) == width,
             "[attention] \"{}\" takes [batch, length, {}]. Got {}.", path(), width,
             to_string(x.type()));
  int64_t batch = x.dim(0), length = x.dim(1);
  Tensor all = reshape(qkv(x), {batch, length, 3, heads_, width / heads_});
  std::vector<Tensor> parts = split(permute(all, {2, 0, 3, 1, 4}), 1, 0);
  for (Tensor& part : parts) part = squeeze(part, 0);  // [batch, heads, length, width / heads]
  Tensor y = attention(parts[0], parts[1], parts[2], {.causal = causal_});
  return dropout_(out(reshape(permute(y, {0, 2, 1, 3}), {batch, length, width})));
}

}  // namespace weft::nn
