// Declares the families that come with weft, one file each, and the keys that many of them share.
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "weft/models/family.h"

namespace weft::models {

std::vector<Family> published_families();  // sorted by name

Family gemma2();
Family gemma3_text();
Family gpt2();
Family gpt_neox();
Family llama();
Family mistral();
Family mixtral();
Family olmo2();
Family phi3();
Family qwen2();
Family qwen3();
Family smollm3();

// ---- shapes.cpp

struct ShapeDefaults {
  int64_t num_key_value_heads = 0;  // 0: as many as query heads
  int64_t head_dim = 0;             // 0: hidden_size / num_attention_heads
  std::string_view activation = "hidden_act";
};
// Binds sizes, the activation, rms_norm_eps, tie_word_embeddings, initializer_range and
// attention_dropout.
void bind_shape(ConfigKeys& keys, DecoderConfig& config, const ShapeDefaults& defaults = {});
// Binds one key to the sliding window of all layers; `otherwise` where config.json lacks it.
void bind_window(ConfigKeys& keys, DecoderConfig& config, int64_t otherwise);
// Binds `layer_types`: which layers have `window`. Where config.json lacks it, `slides` says so.
void bind_layer_types(ConfigKeys& keys, DecoderConfig& config, int64_t window,
                      const std::function<bool(size_t layer)>& slides);
// Returns the sliding window of those layers that have one; 0 if none has.
int64_t window_of(const DecoderConfig& config);

// ---- rope.cpp

struct RopeKeys {
  std::string_view theta = "rope_theta", partial = {};  // the key of the rotated part of a head
  double default_theta = 10000, default_partial = 1;
  bool phi3 = false;  // Phi-3 names its types otherwise, and allows three keys of scaling
};
// Binds the rotary positions of all layers, after bind_shape(): `rope_theta` and `rope_scaling`, as
// transformers 4 writes them, or `rope_parameters`, as 5 does. Writes the older form, which both
// versions read.
void bind_rope(ConfigKeys& keys, DecoderConfig& config, const RopeKeys& names = {});
// Reads one set of `rope_parameters` or `rope_scaling` (null: unscaled) over `rope`.
void read_rope(const ConfigKeys& keys, const nn::Options* parameters, std::string_view key,
               const DecoderConfig& config, nn::RopeOptions& rope, double* partial = nullptr);
// Returns `rope_scaling` of transformers 4; null for unscaled positions.
nn::Option rope_scaling(const nn::RopeOptions& rope);

}  // namespace weft::models
