// Defines SmolLM3 (Bakouch et al. 2025, "SmolLM3: smol, multilingual, long-context reasoner"):
// Llama whose every fourth layer has no positions (Yang et al. 2025, "Rope to Nope and back
// again").
#include "weft/base/error.h"
#include "weft/models/families/families.h"

namespace weft::models {
namespace {
// no_rope_layers has 1 for a layer with rotary positions, and 0 for one without.
void bind_positions(ConfigKeys& keys, DecoderConfig& c) {
  nn::OptionReader* reader = keys.reader();
  if (reader == nullptr) {
    std::vector<int64_t> has_rope;
    for (const DecoderLayer& layer : c.layers) has_rope.push_back(layer.rope >= 0 ? 1 : 0);
    return keys.write("no_rope_layers", has_rope);
  }
  const int64_t interval = reader->integer("no_rope_layer_interval", 4);
  std::vector<int64_t> has_rope;
  for (size_t i = 1; i <= c.layers.size(); ++i)
    has_rope.push_back(static_cast<int64_t>(i) % interval != 0 ? 1 : 0);
  has_rope = reader->integers("no_rope_layers", has_rope, 0);
  if (has_rope.size() < c.layers.size())
    throw Error(ErrorKind::usage,
                "[{}] no_rope_layers must have an entry for each of {} layers. Got {}.",
                keys.family(), c.layers.size(), has_rope.size());
  for (size_t i = 0; i < c.layers.size(); ++i) c.layers[i].rope = has_rope[i] != 0 ? 0 : -1;
}
}  // namespace

Family smollm3() {
  return {.name = "smollm3",
          .doc = "SmolLM3: some layers without positions",
          .architecture = "SmolLM3ForCausalLM",
          .defaults = {.max_position_embeddings = 32768, .tie_word_embeddings = true},
          .bind = [](ConfigKeys& keys, DecoderConfig& c) {
            bind_shape(keys, c, {.num_key_value_heads = 4});
            bind_rope(keys, c, {.default_theta = 2e6});
            bind_positions(keys, c);
            int64_t window = window_of(c);
            bool slides = window > 0;
            keys.flag("use_sliding_window", slides);
            keys.integer_or_null("sliding_window", window);
            bind_layer_types(keys, c, slides ? window : 0,
                             [&](size_t layer) { return c.layers[layer].rope < 0; });
            keys.flag("attention_bias", c.qkv_bias);
            c.out_bias = c.qkv_bias;
            keys.flag("mlp_bias", c.mlp_bias);
          }};
}

}  // namespace weft::models
