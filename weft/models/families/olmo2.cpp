// Defines OLMo 2 (Walsh et al. 2024, "2 OLMo 2 Furious"): norms after attention and perceptron, not
// before, and norms over all queries and all keys of a token.
#include "weft/models/families/families.h"

namespace weft::models {

Family olmo2() {
  return {.name = "olmo2",
          .doc = "OLMo 2",
          .architecture = "Olmo2ForCausalLM",
          .defaults = {.norm_eps = 1e-5,
                       .qk_norm = DecoderConfig::QkNorm::all,
                       .names = {.q_norm = "q_norm",
                                 .k_norm = "k_norm",
                                 .attention_norm = "",
                                 .attention_post_norm = "post_attention_layernorm",
                                 .mlp_norm = "",
                                 .mlp_post_norm = "post_feedforward_layernorm"}},
          .bind = [](ConfigKeys& keys, DecoderConfig& c) {
            bind_shape(keys, c);
            bind_rope(keys, c);
            keys.flag("attention_bias", c.qkv_bias);
            c.out_bias = c.qkv_bias;
          }};
}

}  // namespace weft::models
