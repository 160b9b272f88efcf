// Defines GPT-2 (Radford et al. 2019, "Language models are unsupervised multitask learners") under
// its published names; weft's own "gpt" has nanoGPT's. Matrices are [in, out].
#include "weft/base/error.h"
#include "weft/models/families/families.h"

namespace weft::models {

Family gpt2() {
  return {.name = "gpt2",
          .doc = "GPT-2",
          .architecture = "GPT2LMHeadModel",
          .defaults = {.max_position_embeddings = 1024,
                       .norm = DecoderConfig::Norm::layer,
                       .norm_eps = 1e-5,
                       .qkv_bias = true,
                       .out_bias = true,
                       .mlp_bias = true,
                       .transposed = true,
                       .tie_word_embeddings = true,
                       .hidden_act = "gelu_tanh",
                       .dropout = 0.1,
                       .attention_dropout = 0.1,
                       .scaled_residual_init = true,
                       .names = {.root = "transformer",
                                 .tokens = "wte",
                                 .positions = "wpe",
                                 .layers = "h",
                                 .norm = "ln_f",
                                 .attention = "attn",
                                 .qkv = "c_attn",
                                 .out = "c_proj",
                                 .gate = "",
                                 .up = "c_fc",
                                 .down = "c_proj",
                                 .attention_norm = "ln_1",
                                 .mlp_norm = "ln_2"}},
          .bind = [](ConfigKeys& keys, DecoderConfig& c) {
            keys.required("vocab_size", c.vocab_size, most_tokens);
            keys.integer("n_positions", c.max_position_embeddings, 1, most_tokens);
            keys.required("n_embd", c.hidden_size);
            auto layers = static_cast<int64_t>(c.layers.size());
            keys.required("n_layer", layers, nn::most_layers);
            c.layers.assign(static_cast<size_t>(layers), {.rope = -1});
            keys.required("n_head", c.num_attention_heads);
            if (c.hidden_size % c.num_attention_heads != 0)
              throw Error(ErrorKind::usage, "[{}] n_head must divide n_embd ({}). Got {}.",
                          keys.family(), c.hidden_size, c.num_attention_heads);
            c.num_key_value_heads = c.num_attention_heads;
            c.head_dim = c.hidden_size / c.num_attention_heads;
            if (keys.reader() != nullptr) c.intermediate_size = 4 * c.hidden_size;
            keys.integer("n_inner", c.intermediate_size, 1, 4 * most_features);
            keys.activation("activation_function", c.hidden_act);
            keys.number("layer_norm_epsilon", c.norm_eps, 0, 1);
            keys.number("initializer_range", c.initializer_range, 0, 10);
            keys.flag("tie_word_embeddings", c.tie_word_embeddings);
            bool scales = c.attention_scale == 0;
            keys.flag("scale_attn_weights", scales);
            c.attention_scale = scales ? 0 : 1;
            keys.off("scale_attn_by_inverse_layer_idx");
            keys.off("add_cross_attention");
            keys.dropouts({"resid_pdrop", "embd_pdrop"}, c.dropout);
            keys.number("attn_pdrop", c.attention_dropout, 0, 1);
            if (nn::OptionReader* reader = keys.reader())
              for (const char* key : {"n_ctx", "reorder_and_upcast_attn"}) reader->ignore(key);
          }};
}

}  // namespace weft::models
