// Defines Llama 1 to 3 (Touvron et al. 2023, "LLaMA: Open and efficient foundation language
// models"; Dubey et al. 2024, "The Llama 3 herd of models"), and the models that are published as
// Llama: SmolLM, TinyLlama, Vicuna, DeepSeek LLM.
#include "weft/models/families/families.h"

namespace weft::models {

Family llama() {
  return {.name = "llama",
          .doc = "Llama 1 to 3, SmolLM",
          .architecture = "LlamaForCausalLM",
          .defaults = {},
          .bind = [](ConfigKeys& keys, DecoderConfig& c) {
            bind_shape(keys, c);
            bind_rope(keys, c);
            keys.flag("attention_bias", c.qkv_bias);
            c.out_bias = c.qkv_bias;
            keys.flag("mlp_bias", c.mlp_bias);
          }};
}

}  // namespace weft::models
