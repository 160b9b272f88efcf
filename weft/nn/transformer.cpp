#include "weft/nn/transformer.h"

#include <utility>

#include "weft/base/error.h"

namespace weft::nn {
namespace {
LinearOptions linear_options(const TransformerOptions& options, int64_t in, int64_t out) {
  LinearOptions made{.bias = options.bias};
  if (options.xavier) made.init = Init::xavier(in, out);
  return made;
}
NormOptions norm_options(const TransformerOptions& options) {
  return {.eps = options.layer_norm_eps, .bias = options.bias};
}
MultiheadAttentionOptions attention_options(const TransformerOptions& options, int64_t width) {
  MultiheadAttentionOptions made{.dropout = options.dropout, .bias = options.bias};
  if (options.xavier) made.out_init = Init::xavier(width, width);
  return made;
}
std::unique_ptr<LayerNorm> final_norm(Module& parent, int64_t width,
                                      const TransformerOptions& options) {
  if (!options.norm) return nullptr;
  return std::make_unique<LayerNorm>(parent, "norm", width, norm_options(options));
}
TransformerOptions of_transformer(TransformerOptions options) {
  options.norm = options.xavier = true;
  return options;
}
}  // namespace

TransformerEncoderLayer::TransformerEncoderLayer(Module& parent, std::string name, int64_t d_model,
                                                 int64_t nhead, const TransformerOptions& options)
    : Layer(parent, std::move(name)),
      self_attn(*this, "self_attn", d_model, nhead, attention_options(options, d_model)),
      linear1(*this, "linear1", d_model, options.dim_feedforward,
              linear_options(options, d_model, options.dim_feedforward)),
      linear2(*this, "linear2", options.dim_feedforward, d_model,
              linear_options(options, options.dim_feedforward, d_model)),
      norm1(*this, "norm1", d_model, norm_options(options)),
      norm2(*this, "norm2", d_model, norm_options(options)),
      dropout_(*this, "dropout", options.dropout),
      dropout1_(*this, "dropout1", options.dropout),
      dropout2_(*this, "dropout2", options.dropout),
      activation_(activation_function(options.activation, "transformer")),
      norm_first_(options.norm_first) {}

Tensor TransformerEncoderLayer::operator()(const Arg& src, const AttentionMasks& masks) const {
  OriginScope scope(path(), src.where);
  return run(src.value, masks);
}

Tensor TransformerEncoderLayer::run(const Tensor& src, const AttentionMasks& masks) const {
  auto attend = [&](const Tensor& x) { return dropout1_(self_attn(x, x, x, masks)); };
  auto feed = [&](const Tensor& x) {
    return dropout2_(linear2(dropout_(activation_(linear1(x)))));
  };
  if (norm_first_) {
    const Tensor x = src + attend(norm1(src));
    return x + feed(norm2(x));
  }
  const Tensor x = norm1(src + attend(src));
  return norm2(x + feed(x));
}

TransformerDecoderLayer::TransformerDecoderLayer(Module& parent, std::string name, int64_t d_model,
                                                 int64_t nhead, const TransformerOptions& options)
    : Module(parent, std::move(name)),
      self_attn(*this, "self_attn", d_model, nhead, attention_options(options, d_model)),
      multihead_attn(*this, "multihead_attn", d_model, nhead, attention_options(options, d_model)),
      linear1(*this, "linear1", d_model, options.dim_feedforward,
              linear_options(options, d_model, options.dim_feedforward)),
      linear2(*this, "linear2", options.dim_feedforward, d_model,
              linear_options(options, options.dim_feedforward, d_model)),
      norm1(*this, "norm1", d_model, norm_options(options)),
      norm2(*this, "norm2", d_model, norm_options(options)),
      norm3(*this, "norm3", d_model, norm_options(options)),
      dropout_(*this, "dropout", options.dropout),
      dropout1_(*this, "dropout1", options.dropout),
      dropout2_(*this, "dropout2", options.dropout),
      dropout3_(*this, "dropout3", options.dropout),
      activation_(activation_function(options.activation, "transformer")),
      norm_first_(options.norm_first) {}

Tensor TransformerDecoderLayer::operator()(const Arg& tgt, const Tensor& memory,
                                           const AttentionMasks& tgt_masks,
                                           const AttentionMasks& memory_masks) const {
  OriginScope scope(path(), tgt.where);
  auto attend = [&](const Tensor& x) { return dropout1_(self_attn(x, x, x, tgt_masks)); };
  auto look = [&](const Tensor& x) {
    return dropout2_(multihead_attn(x, memory, memory, memory_masks));
  };
  auto feed = [&](const Tensor& x) {
    return dropout3_(linear2(dropout_(activation_(linear1(x)))));
  };
  if (norm_first_) {
    const Tensor x = tgt.value + attend(norm1(tgt.value));
    const Tensor y = x + look(norm2(x));
    return y + feed(norm3(y));
  }
  const Tensor x = norm1(tgt.value + attend(tgt.value));
  const Tensor y = norm2(x + look(x));
  return norm3(y + feed(y));
}

TransformerEncoder::TransformerEncoder(Module& parent, std::string name, int64_t num_layers,
                                       int64_t d_model, int64_t nhead,
                                       const TransformerOptions& options)
    : Layer(parent, std::move(name)), layers(*this, "layers") {
  for (int64_t i = 0; i < num_layers; ++i) layers.add(d_model, nhead, options);
  norm = final_norm(*this, d_model, options);
}

Tensor TransformerEncoder::operator()(const Arg& src, const AttentionMasks& masks) const {
  OriginScope scope(path(), src.where);
  return run(src.value, masks);
}

Tensor TransformerEncoder::run(const Tensor& src, const AttentionMasks& masks) const {
  Tensor x = src;
  for (const TransformerEncoderLayer& layer : layers) x = layer(x, masks);
  return norm ? (*norm)(x) : x;
}

TransformerDecoder::TransformerDecoder(Module& parent, std::string name, int64_t num_layers,
                                       int64_t d_model, int64_t nhead,
                                       const TransformerOptions& options)
    : Module(parent, std::move(name)), layers(*this, "layers") {
  for (int64_t i = 0; i < num_layers; ++i) layers.add(d_model, nhead, options);
  norm = final_norm(*this, d_model, options);
}

Tensor TransformerDecoder::operator()(const Arg& tgt, const Tensor& memory,
                                      const AttentionMasks& tgt_masks,
                                      const AttentionMasks& memory_masks) const {
  OriginScope scope(path(), tgt.where);
  Tensor x = tgt.value;
  for (const TransformerDecoderLayer& layer : layers) x = layer(x, memory, tgt_masks, memory_masks);
  return norm ? (*norm)(x) : x;
}

Transformer::Transformer(Module& parent, std::string name, int64_t d_model, int64_t nhead,
                         int64_t num_encoder_layers, int64_t num_decoder_layers,
                         const TransformerOptions& options)
    : Module(parent, std::move(name)),
      encoder(*this, "encoder", num_encoder_layers, d_model, nhead, of_transformer(options)),
      decoder(*this, "decoder", num_decoder_layers, d_model, nhead, of_transformer(options)) {}

Tensor Transformer::operator()(const Arg& src, const Tensor& tgt,
                               const TransformerMasks& masks) const {
  OriginScope scope(path(), src.where);
  return decoder(tgt, encoder(src.value, masks.src), masks.tgt, masks.memory);
}

}  // namespace weft::nn
