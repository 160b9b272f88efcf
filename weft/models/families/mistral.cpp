// Defines Mistral (Jiang et al. 2023, "Mistral 7B"): Llama with a sliding window in every layer.
#include "weft/models/families/families.h"

namespace weft::models {

Family mistral() {
  return {.name = "mistral",
          .doc = "Mistral: a sliding window in every layer",
          .architecture = "MistralForCausalLM",
          .defaults = {},
          .bind = [](ConfigKeys& keys, DecoderConfig& c) {
            bind_shape(keys, c, {.num_key_value_heads = 8});
            bind_rope(keys, c);
            bind_window(keys, c, 4096);
          }};
}

}  // namespace weft::models
