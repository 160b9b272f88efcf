// Declares attention with masks, cross-attention, and the encoder and decoder of Vaswani et al.
// 2017, "Attention is all you need". Names of classes, options and parameters, defaults, equations
// and initial values are PyTorch's (torch.nn.MultiheadAttention, TransformerEncoderLayer, ...), so
// that weights load by name. The batch comes first. B: batch, T: queries, S: keys, E: d_model or
// embed_dim. Errors are those of weft/nn/layers.h.
//
//   nn::TransformerEncoder encoder{*this, "encoder", 6, 512, 8, {.norm_first = true}};
//   Tensor memory = encoder(x, {.key_padding_mask = tokens == padding});
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "weft/nn/containers.h"
#include "weft/nn/layers.h"

namespace weft::nn {

// AttentionMasks says which keys a query ignores. Bool masks are true where a key is NOT attended
// to, as in torch.nn (and unlike AttentionOptions::mask); float masks are added to the scores.
struct AttentionMasks {
  Tensor attn_mask = {};         // [T, S], or [B * heads, T, S]
  Tensor key_padding_mask = {};  // [B, S]
  bool is_causal = false;        // query t attends to keys 0 .. t; needs no attn_mask
};

// ---- multihead_attention.cpp

struct MultiheadAttentionOptions {
  double dropout = 0;  // dropout rate of the attention weights
  bool bias = true;
  int64_t kdim = 0, vdim = 0;         // widths of keys and values; 0: embed_dim
  int64_t num_kv_heads = 0;           // heads of keys and values (GQA); 0: num_heads
  std::optional<Init> out_init = {};  // initial values of out_proj's weight; empty: PyTorch's
};
// The parameters are in_proj_weight [E + 2 num_kv_heads * head width, E] (of queries, keys and
// values), or q_proj_weight, k_proj_weight and v_proj_weight if kdim or vdim differs from E;
// in_proj_bias; out_proj. num_heads divides embed_dim, num_kv_heads divides num_heads. A query that
// may attend to no key gives 0 if all masks are bool, else NaN, as in PyTorch.
class MultiheadAttention : public Module {
 public:
  MultiheadAttention(Module& parent, std::string name, int64_t embed_dim, int64_t num_heads,
                     const MultiheadAttentionOptions& options = {});
  // Maps query[B, T, E], key[B, S, kdim], value[B, S, vdim] to [B, T, E].
  Tensor operator()(const Arg& query, const Tensor& key, const Tensor& value,
                    const AttentionMasks& masks = {}) const;

  Variable in_proj_weight;                               // empty if kdim or vdim differs
  Variable q_proj_weight, k_proj_weight, v_proj_weight;  // empty otherwise
  Variable in_proj_bias;                                 // empty without bias
  Linear out_proj;

 private:
  struct Projected {
    Tensor query, key, value;
  };
  Projected project(const Tensor& query, const Tensor& key, const Tensor& value) const;

  int64_t num_heads_, num_kv_heads_, head_dim_;
  double dropout_;
};

// ---- transformer.cpp

struct TransformerOptions {
  int64_t dim_feedforward = 2048;
  double dropout = 0.1;
  std::string_view activation = "relu";  // or another of activation_names()
  double layer_norm_eps = 1e-5;
  bool norm_first = false;  // norms before attention and feed-forward, not after
  bool bias = true;         // linear layers and norms have biases
  bool norm = false;        // TransformerEncoder and TransformerDecoder: a norm of their result
  bool xavier = false;      // matrices by Init::xavier, linear biases 0; Transformer sets it
};

class TransformerEncoderLayer : public Layer {  // [B, T, E] -> [B, T, E]
 public:
  TransformerEncoderLayer(Module& parent, std::string name, int64_t d_model, int64_t nhead,
                          const TransformerOptions& options = {});
  Tensor operator()(const Arg& src, const AttentionMasks& masks) const;
  using Layer::operator();

  MultiheadAttention self_attn;
  Linear linear1, linear2;
  LayerNorm norm1, norm2;

 protected:
  Tensor forward(const Tensor& src) const override { return run(src, {}); }

 private:
  Tensor run(const Tensor& src, const AttentionMasks& masks) const;

  Dropout dropout_, dropout1_, dropout2_;
  ActivationFunction activation_;
  bool norm_first_;
};

class TransformerDecoderLayer : public Module {  // [B, T, E], memory[B, S, E] -> [B, T, E]
 public:
  TransformerDecoderLayer(Module& parent, std::string name, int64_t d_model, int64_t nhead,
                          const TransformerOptions& options = {});
  // `tgt_masks` apply to self_attn, `memory_masks` to multihead_attn.
  Tensor operator()(const Arg& tgt, const Tensor& memory, const AttentionMasks& tgt_masks = {},
                    const AttentionMasks& memory_masks = {}) const;

  MultiheadAttention self_attn, multihead_attn;
  Linear linear1, linear2;
  LayerNorm norm1, norm2, norm3;

 private:
  Dropout dropout_, dropout1_, dropout2_, dropout3_;
  ActivationFunction activation_;
  bool norm_first_;
};

class TransformerEncoder : public Layer {  // num_layers layers, "layers.0", ...
 public:
  TransformerEncoder(Module& parent, std::string name, int64_t num_layers, int64_t d_model,
                     int64_t nhead, const TransformerOptions& options = {});
  Tensor operator()(const Arg& src, const AttentionMasks& masks) const;
  using Layer::operator();

  ModuleList<TransformerEncoderLayer> layers;
  std::unique_ptr<LayerNorm> norm;  // null without options.norm

 protected:
  Tensor forward(const Tensor& src) const override { return run(src, {}); }

 private:
  Tensor run(const Tensor& src, const AttentionMasks& masks) const;
};

class TransformerDecoder : public Module {
 public:
  TransformerDecoder(Module& parent, std::string name, int64_t num_layers, int64_t d_model,
                     int64_t nhead, const TransformerOptions& options = {});
  Tensor operator()(const Arg& tgt, const Tensor& memory, const AttentionMasks& tgt_masks = {},
                    const AttentionMasks& memory_masks = {}) const;

  ModuleList<TransformerDecoderLayer> layers;
  std::unique_ptr<LayerNorm> norm;  // null without options.norm
};

// TransformerMasks holds the masks of a Transformer's three attentions.
struct TransformerMasks {
  AttentionMasks src = {}, tgt = {}, memory = {};
};
// Transformer is an encoder and a decoder, each with a final norm. Matrices begin by Init::xavier.
class Transformer : public Module {
 public:
  Transformer(Module& parent, std::string name, int64_t d_model = 512, int64_t nhead = 8,
              int64_t num_encoder_layers = 6, int64_t num_decoder_layers = 6,
              const TransformerOptions& options = {});
  // Maps src[B, S, E], tgt[B, T, E] to [B, T, E].
  Tensor operator()(const Arg& src, const Tensor& tgt, const TransformerMasks& masks = {}) const;

  TransformerEncoder encoder;
  TransformerDecoder decoder;
};

}  // namespace weft::nn
