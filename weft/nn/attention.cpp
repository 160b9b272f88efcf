#include "weft/nn/layers.h"

namespace weft::nn {

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
