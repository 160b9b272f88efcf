// Defines Qwen 2 and 2.5 (Yang et al. 2024, "Qwen2 technical report"), which have biases of
// queries, keys and values, and Qwen 3 (Yang et al. 2025, "Qwen3 technical report"), which has
// norms of queries and keys instead.
#include <algorithm>

#include "weft/models/families/families.h"

namespace weft::models {
namespace {
// Layers from max_window_layers on have a sliding window, if use_sliding_window.
void bind_windows(ConfigKeys& keys, DecoderConfig& c) {
  const bool reads = keys.reader() != nullptr;
  int64_t window = reads ? 4096 : window_of(c);
  bool slides = !reads && window > 0;
  keys.flag("use_sliding_window", slides);
  keys.integer_or_null("sliding_window", window);
  const auto first =
      std::ranges::find_if(c.layers, [](const DecoderLayer& layer) { return layer.window > 0; });
  int64_t without = reads ? 28 : first - c.layers.begin();
  keys.integer("max_window_layers", without, 0);
  bind_layer_types(keys, c, slides ? window : 0,
                   [&](size_t layer) { return layer >= static_cast<size_t>(without); });
}
}  // namespace

Family qwen2() {
  return {.name = "qwen2",
          .doc = "Qwen 2 and 2.5",
          .architecture = "Qwen2ForCausalLM",
          .defaults = {.max_position_embeddings = 32768, .qkv_bias = true},
          .bind = [](ConfigKeys& keys, DecoderConfig& c) {
            bind_shape(keys, c, {.num_key_value_heads = 32});
            bind_rope(keys, c);
            bind_windows(keys, c);
          }};
}

Family qwen3() {
  return {.name = "qwen3",
          .doc = "Qwen 3, dense",
          .architecture = "Qwen3ForCausalLM",
          .defaults = {.max_position_embeddings = 32768,
                       .names = {.q_norm = "q_norm", .k_norm = "k_norm"}},
          .bind = [](ConfigKeys& keys, DecoderConfig& c) {
            bind_shape(keys, c, {.num_key_value_heads = 32, .head_dim = 128});
            bind_rope(keys, c);
            bind_windows(keys, c);
            keys.flag("attention_bias", c.qkv_bias);
            c.out_bias = c.qkv_bias;
          }};
}

}  // namespace weft::models
