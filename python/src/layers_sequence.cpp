// Layers of sequences: recurrent ones, attention, transformers, mixtures of experts; and LoRA.
#include "weft/nn/lora.h"
#include "weft/nn/moe.h"
#include "weft/nn/transformer.h"

#include "python/src/modules.h"

namespace weft::python {
namespace {
using namespace nn;
using Optional = std::optional<Arg>;
using MaybeInit = std::optional<Init>;

template <class R>
void bind_recurrent(nb::module_& m, const char* name) {
  nb::class_<R, Recurrent> type(m, name);
  def_constructor(
      type,
      +[](R* self, Module& parent, std::string child, int64_t input_size, int64_t hidden_size,
          int64_t num_layers, bool bias, double dropout, bool bidirectional) {
        new (self) R(parent, std::move(child), input_size, hidden_size,
                     {.num_layers = num_layers,
                      .bias = bias,
                      .dropout = dropout,
                      .bidirectional = bidirectional});
      },
      "input_size"_a, "hidden_size"_a, "num_layers"_a = 1, "bias"_a = true, "dropout"_a = 0.0,
      "bidirectional"_a = false);
}

void bind_recurrent_layers(nb::module_& m) {
  nb::class_<Recurrent, Layer>(m, "Recurrent")
      .def(
          "run",
          [](const Recurrent& self, const Arg& x, const Optional& h, const Optional& c,
             const Optional& lengths) {
            RecurrentResult result =
                self.run(x, {.h = or_empty(h), .c = or_empty(c), .lengths = or_empty(lengths)});
            std::optional<Tensor> last;
            if (result.c.defined()) last = std::move(result.c);
            return std::tuple(std::move(result.y), std::move(result.h), std::move(last));
          },
          "x"_a, "h"_a = nb::none(), "c"_a = nb::none(), "lengths"_a = nb::none());
  bind_recurrent<LSTM>(m, "LSTM");
  bind_recurrent<GRU>(m, "GRU");
}

void bind_attention(nb::module_& m) {
  nb::class_<SelfAttention, Layer> self_attention(m, "SelfAttention");
  def_constructor(
      self_attention,
      +[](SelfAttention* self, Module& parent, std::string name, int64_t width, int64_t heads,
          bool causal, bool bias, double dropout, MaybeInit init, MaybeInit out_init,
          std::string qkv_name, std::string out_name) {
        new (self) SelfAttention(parent, std::move(name), width, heads,
                                 {.causal = causal,
                                  .bias = bias,
                                  .dropout = dropout,
                                  .init = init,
                                  .out_init = out_init,
                                  .qkv_name = std::move(qkv_name),
                                  .out_name = std::move(out_name)});
      },
      "width"_a, "heads"_a, "causal"_a = false, "bias"_a = true, "dropout"_a = 0.0,
      "init"_a = nb::none(), "out_init"_a = nb::none(), "qkv_name"_a = "qkv", "out_name"_a = "out");
  self_attention.def_ro("qkv", &SelfAttention::qkv).def_ro("out", &SelfAttention::out);

  nb::class_<AttentionMasks>(m, "AttentionMasks",
                             "Which keys a query ignores: bool masks are true where a key is not "
                             "attended to, float masks are added to the scores.")
      .def(
          "__init__",
          [](AttentionMasks* self, const Optional& attn_mask, const Optional& key_padding_mask,
             bool is_causal) {
            new (self) AttentionMasks{.attn_mask = or_empty(attn_mask),
                                      .key_padding_mask = or_empty(key_padding_mask),
                                      .is_causal = is_causal};
          },
          "attn_mask"_a = nb::none(), "key_padding_mask"_a = nb::none(), "is_causal"_a = false);

  nb::class_<MultiheadAttention, Module> attention(m, "MultiheadAttention");
  def_constructor(
      attention,
      +[](MultiheadAttention* self, Module& parent, std::string name, int64_t embed_dim,
          int64_t num_heads, double dropout, bool bias, int64_t kdim, int64_t vdim,
          int64_t num_kv_heads, MaybeInit out_init) {
        new (self) MultiheadAttention(parent, std::move(name), embed_dim, num_heads,
                                      {.dropout = dropout,
                                       .bias = bias,
                                       .kdim = kdim,
                                       .vdim = vdim,
                                       .num_kv_heads = num_kv_heads,
                                       .out_init = out_init});
      },
      "embed_dim"_a, "num_heads"_a, "dropout"_a = 0.0, "bias"_a = true, "kdim"_a = 0, "vdim"_a = 0,
      "num_kv_heads"_a = 0, "out_init"_a = nb::none());
  attention
      .def(
          "__call__",
          [](const MultiheadAttention& self, const Arg& query, const Arg& key, const Arg& value,
             const AttentionMasks& masks) { return self(query, key.value, value.value, masks); },
          "query"_a, "key"_a, "value"_a, "masks"_a = AttentionMasks())
      .def_prop_ro("in_proj_weight", member(&MultiheadAttention::in_proj_weight))
      .def_prop_ro("q_proj_weight", member(&MultiheadAttention::q_proj_weight))
      .def_prop_ro("k_proj_weight", member(&MultiheadAttention::k_proj_weight))
      .def_prop_ro("v_proj_weight", member(&MultiheadAttention::v_proj_weight))
      .def_prop_ro("in_proj_bias", member(&MultiheadAttention::in_proj_bias))
      .def_ro("out_proj", &MultiheadAttention::out_proj);
}

TransformerOptions transformer(int64_t dim_feedforward, double dropout,
                               const std::string& activation, double layer_norm_eps,
                               bool norm_first, bool bias, bool norm = false) {
  return {.dim_feedforward = dim_feedforward,
          .dropout = dropout,
          .activation = activation,
          .layer_norm_eps = layer_norm_eps,
          .norm_first = norm_first,
          .bias = bias,
          .norm = norm};
}

// Binds the constructor of an encoder's or decoder's layer.
template <class Class, class L>
void def_block(Class& type, L*) {
  def_constructor(
      type,
      +[](L* self, Module& parent, std::string name, int64_t d_model, int64_t nhead,
          int64_t dim_feedforward, double dropout, std::string activation, double layer_norm_eps,
          bool norm_first, bool bias) {
        new (self)
            L(parent, std::move(name), d_model, nhead,
              transformer(dim_feedforward, dropout, activation, layer_norm_eps, norm_first, bias));
      },
      "d_model"_a, "nhead"_a, "dim_feedforward"_a = 2048, "dropout"_a = 0.1,
      "activation"_a = "relu", "layer_norm_eps"_a = 1e-5, "norm_first"_a = false, "bias"_a = true);
}
// Binds the constructor of a stack of such layers.
template <class Class, class S>
void def_stack(Class& type, S*) {
  def_constructor(
      type,
      +[](S* self, Module& parent, std::string name, int64_t num_layers, int64_t d_model,
          int64_t nhead, int64_t dim_feedforward, double dropout, std::string activation,
          double layer_norm_eps, bool norm_first, bool bias, bool norm) {
        new (self) S(parent, std::move(name), num_layers, d_model, nhead,
                     transformer(dim_feedforward, dropout, activation, layer_norm_eps, norm_first,
                                 bias, norm));
      },
      "num_layers"_a, "d_model"_a, "nhead"_a, "dim_feedforward"_a = 2048, "dropout"_a = 0.1,
      "activation"_a = "relu", "layer_norm_eps"_a = 1e-5, "norm_first"_a = false, "bias"_a = true,
      "norm"_a = false);
}

// Returns the layers of a stack, which Python may hold as long as the stack lives.
template <class Stack>
auto layers_of(const Stack& self) {
  std::vector<decltype(&self.layers[0])> all;
  for (auto& layer : self.layers) all.push_back(&layer);
  return all;
}

template <class Encoder>
Tensor encode(const Encoder& self, const Arg& src, const AttentionMasks& masks) {
  return self(src, masks);
}
template <class Decoder>
Tensor decode(const Decoder& self, const Arg& tgt, const Arg& memory,
              const AttentionMasks& tgt_masks, const AttentionMasks& memory_masks) {
  return self(tgt, memory.value, tgt_masks, memory_masks);
}

void bind_transformers(nb::module_& m) {
  nb::class_<TransformerEncoderLayer, Layer> encoder_layer(m, "TransformerEncoderLayer");
  def_block(encoder_layer, static_cast<TransformerEncoderLayer*>(nullptr));
  encoder_layer
      .def("__call__", &encode<TransformerEncoderLayer>, "src"_a, "masks"_a = AttentionMasks())
      .def_ro("self_attn", &TransformerEncoderLayer::self_attn)
      .def_ro("linear1", &TransformerEncoderLayer::linear1)
      .def_ro("linear2", &TransformerEncoderLayer::linear2)
      .def_ro("norm1", &TransformerEncoderLayer::norm1)
      .def_ro("norm2", &TransformerEncoderLayer::norm2);

  nb::class_<TransformerDecoderLayer, Module> decoder_layer(m, "TransformerDecoderLayer");
  def_block(decoder_layer, static_cast<TransformerDecoderLayer*>(nullptr));
  decoder_layer
      .def("__call__", &decode<TransformerDecoderLayer>, "tgt"_a, "memory"_a,
           "tgt_masks"_a = AttentionMasks(), "memory_masks"_a = AttentionMasks())
      .def_ro("self_attn", &TransformerDecoderLayer::self_attn)
      .def_ro("multihead_attn", &TransformerDecoderLayer::multihead_attn)
      .def_ro("linear1", &TransformerDecoderLayer::linear1)
      .def_ro("linear2", &TransformerDecoderLayer::linear2)
      .def_ro("norm1", &TransformerDecoderLayer::norm1)
      .def_ro("norm2", &TransformerDecoderLayer::norm2)
      .def_ro("norm3", &TransformerDecoderLayer::norm3);

  nb::class_<TransformerEncoder, Layer> encoder(m, "TransformerEncoder");
  def_stack(encoder, static_cast<TransformerEncoder*>(nullptr));
  encoder.def("__call__", &encode<TransformerEncoder>, "src"_a, "masks"_a = AttentionMasks())
      .def_prop_ro("layers", &layers_of<TransformerEncoder>, nb::rv_policy::reference_internal);

  nb::class_<TransformerDecoder, Module> decoder(m, "TransformerDecoder");
  def_stack(decoder, static_cast<TransformerDecoder*>(nullptr));
  decoder
      .def("__call__", &decode<TransformerDecoder>, "tgt"_a, "memory"_a,
           "tgt_masks"_a = AttentionMasks(), "memory_masks"_a = AttentionMasks())
      .def_prop_ro("layers", &layers_of<TransformerDecoder>, nb::rv_policy::reference_internal);

  nb::class_<Transformer, Module> both(m, "Transformer");
  def_constructor(
      both,
      +[](Transformer* self, Module& parent, std::string name, int64_t d_model, int64_t nhead,
          int64_t num_encoder_layers, int64_t num_decoder_layers, int64_t dim_feedforward,
          double dropout, std::string activation, double layer_norm_eps, bool norm_first,
          bool bias) {
        new (self) Transformer(
            parent, std::move(name), d_model, nhead, num_encoder_layers, num_decoder_layers,
            transformer(dim_feedforward, dropout, activation, layer_norm_eps, norm_first, bias));
      },
      "d_model"_a = 512, "nhead"_a = 8, "num_encoder_layers"_a = 6, "num_decoder_layers"_a = 6,
      "dim_feedforward"_a = 2048, "dropout"_a = 0.1, "activation"_a = "relu",
      "layer_norm_eps"_a = 1e-5, "norm_first"_a = false, "bias"_a = true);
  both.def(
          "__call__",
          [](const Transformer& self, const Arg& src, const Arg& tgt,
             const AttentionMasks& src_masks, const AttentionMasks& tgt_masks,
             const AttentionMasks& memory_masks) {
            return self(src, tgt.value,
                        {.src = src_masks, .tgt = tgt_masks, .memory = memory_masks});
          },
          "src"_a, "tgt"_a, "src_masks"_a = AttentionMasks(), "tgt_masks"_a = AttentionMasks(),
          "memory_masks"_a = AttentionMasks())
      .def_ro("encoder", &Transformer::encoder)
      .def_ro("decoder", &Transformer::decoder);
}

void bind_experts(nb::module_& m) {
  nb::class_<SparseMoe, Layer> moe(m, "SparseMoe");
  def_constructor(
      moe,
      +[](SparseMoe* self, Module& parent, std::string name, int64_t hidden_size,
          int64_t intermediate_size, int64_t num_experts, int64_t num_experts_per_tok,
          bool norm_topk_prob, std::string activation, MaybeInit init) {
        new (self) SparseMoe(parent, std::move(name), hidden_size, intermediate_size,
                             {.num_experts = num_experts,
                              .num_experts_per_tok = num_experts_per_tok,
                              .norm_topk_prob = norm_topk_prob,
                              .activation = activation,
                              .init = init});
      },
      "hidden_size"_a, "intermediate_size"_a, "num_experts"_a = 8, "num_experts_per_tok"_a = 2,
      "norm_topk_prob"_a = true, "activation"_a = "silu", "init"_a = nb::none());
  moe.def_ro("gate", &SparseMoe::gate);
}

void bind_lora(nb::module_& m) {
  m.def(
      "add_lora",
      [](Module& model, const std::vector<std::string>& targets, int64_t r, double lora_alpha,
         double lora_dropout, bool use_rslora, bool use_dora) {
        const CallSite site(python_line(), "add_lora");
        return add_lora(model, targets,
                        {.r = r,
                         .lora_alpha = lora_alpha,
                         .lora_dropout = lora_dropout,
                         .use_rslora = use_rslora,
                         .use_dora = use_dora});
      },
      "model"_a, "targets"_a, "r"_a = 8, "lora_alpha"_a = 8.0, "lora_dropout"_a = 0.0,
      "use_rslora"_a = false, "use_dora"_a = false);
  m.def("merge_lora", &merge_lora, "model"_a);
}
}  // namespace

void bind_sequence_layers(nb::module_& m) {
  bind_recurrent_layers(m);
  bind_attention(m);
  bind_transformers(m);
  bind_experts(m);
  bind_lora(m);
}

}  // namespace weft::python
