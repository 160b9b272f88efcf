// Defines Mixtral (Jiang et al. 2024, "Mixtral of experts"): Mistral with a sparse mixture of
// experts.
#include "weft/base/error.h"
#include "weft/models/families/families.h"

namespace weft::models {

Family mixtral() {
  return {.name = "mixtral",
          .doc = "Mixtral: Mistral with experts",
          .architecture = "MixtralForCausalLM",
          .defaults = {.norm_eps = 1e-5,
                       .num_experts = 8,
                       .num_experts_per_tok = 2,
                       .names = {.mlp = "block_sparse_moe"}},
          .bind = [](ConfigKeys& keys, DecoderConfig& c) {
            bind_shape(keys, c, {.num_key_value_heads = 8});
            bind_rope(keys, c, {.default_theta = 1e6});
            bind_window(keys, c, 0);
            keys.integer("num_local_experts", c.num_experts, 1, 4096);
            keys.integer("num_experts_per_tok", c.num_experts_per_tok);
            if (c.num_experts_per_tok > c.num_experts)
              throw Error(
                  ErrorKind::usage,
                  "[{}] num_experts_per_tok must be at most num_local_experts ({}). Got {}.",
                  keys.family(), c.num_experts, c.num_experts_per_tok);
            // The loss that balances the experts in training is off unless a program asks for it.
            if (nn::OptionReader* reader = keys.reader())
              for (const char* key :
                   {"output_router_logits", "router_aux_loss_coef", "router_jitter_noise"})
                reader->ignore(key);
          }};
}

}  // namespace weft::models
