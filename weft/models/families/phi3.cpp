// Defines Phi-3, Phi-3.5 and Phi-4 (Abdin et al. 2024, "Phi-3 technical report"): Llama with one
// matrix for queries, keys and values, one for gate and up, and longrope for long contexts.
#include "weft/models/families/families.h"

namespace weft::models {

Family phi3() {
  return {.name = "phi3",
          .doc = "Phi-3, Phi-3.5, Phi-4",
          .architecture = "Phi3ForCausalLM",
          .defaults = {.max_position_embeddings = 4096,
                       .norm_eps = 1e-5,
                       .names = {.qkv = "qkv_proj", .gate_up = "gate_up_proj"}},
          .bind = [](ConfigKeys& keys, DecoderConfig& c) {
            bind_shape(keys, c);
            bind_rope(keys, c, {.partial = "partial_rotary_factor", .phi3 = true});
            bind_window(keys, c, 0);
            keys.dropouts({"resid_pdrop", "embd_pdrop"}, c.dropout);
          }};
}

}  // namespace weft::models
