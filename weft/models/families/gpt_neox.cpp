// Defines GPT-NeoX (Black et al. 2022, "GPT-NeoX-20B: An open-source autoregressive language
// model") and Pythia: attention and perceptron in parallel, and rotary positions of a part of each
// head.
#include "weft/base/error.h"
#include "weft/models/families/families.h"

namespace weft::models {

Family gpt_neox() {
  return {.name = "gpt_neox",
          .doc = "GPT-NeoX, Pythia",
          .architecture = "GPTNeoXForCausalLM",
          .defaults = {.norm = DecoderConfig::Norm::layer,
                       .norm_eps = 1e-5,
                       .qkv_bias = true,
                       .out_bias = true,
                       .mlp_bias = true,
                       .qkv_by_head = true,
                       .parallel = true,
                       .hidden_act = "gelu",
                       .names = {.root = "gpt_neox",
                                 .tokens = "embed_in",
                                 .norm = "final_layer_norm",
                                 .head = "embed_out",
                                 .attention = "attention",
                                 .qkv = "query_key_value",
                                 .out = "dense",
                                 .gate = "",
                                 .up = "dense_h_to_4h",
                                 .down = "dense_4h_to_h"}},
          .bind = [](ConfigKeys& keys, DecoderConfig& c) {
            keys.required("vocab_size", c.vocab_size, most_tokens);
            keys.integer("max_position_embeddings", c.max_position_embeddings, 1, most_tokens);
            keys.required("hidden_size", c.hidden_size);
            keys.required("intermediate_size", c.intermediate_size);
            auto layers = static_cast<int64_t>(c.layers.size());
            keys.required("num_hidden_layers", layers, nn::most_layers);
            c.layers.resize(static_cast<size_t>(layers));
            keys.required("num_attention_heads", c.num_attention_heads);
            if (c.hidden_size % c.num_attention_heads != 0)
              throw Error(ErrorKind::usage,
                          "[{}] num_attention_heads must divide hidden_size ({}). Got {}.",
                          keys.family(), c.hidden_size, c.num_attention_heads);
            c.num_key_value_heads = c.num_attention_heads;
            c.head_dim = c.hidden_size / c.num_attention_heads;
            keys.activation("hidden_act", c.hidden_act);
            keys.number("layer_norm_eps", c.norm_eps, 0, 1);
            keys.number("initializer_range", c.initializer_range, 0, 10);
            keys.flag("tie_word_embeddings", c.tie_word_embeddings);
            keys.flag("use_parallel_residual", c.parallel);
            keys.flag("attention_bias", c.qkv_bias);
            c.out_bias = c.qkv_bias;
            bind_rope(
                keys, c,
                {.theta = "rotary_emb_base", .partial = "rotary_pct", .default_partial = 0.25});
            keys.dropouts({"hidden_dropout"}, c.dropout);
            keys.number("attention_dropout", c.attention_dropout, 0, 1);
          }};
}

}  // namespace weft::models
