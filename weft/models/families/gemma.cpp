// Defines Gemma 2 (Gemma team 2024, "Gemma 2: Improving open language models at a practical size"),
// which has norms before and after attention and perceptron, capped scores and logits, and a
// sliding window in every second layer, and the text model of Gemma 3 (Gemma team 2025, "Gemma 3
// technical report"), which has norms of queries and keys instead of caps, and rotary positions of
// their own in sliding layers.
#include <cmath>

#include "weft/base/error.h"
#include "weft/base/logging.h"
#include "weft/models/families/families.h"

namespace weft::models {
namespace {
DecoderConfig gemma_defaults() {
  return {.max_position_embeddings = 8192,
          .norm = DecoderConfig::Norm::rms_plus_one,
          .tie_word_embeddings = true,
          .hidden_act = "gelu_tanh",
          .names = {.attention_post_norm = "post_attention_layernorm",
                    .mlp_norm = "pre_feedforward_layernorm",
                    .mlp_post_norm = "post_feedforward_layernorm"}};
}

// Binds the keys that Gemma 2 and 3 share. Of `pattern` layers in a row only the last attends to
// all tokens.
void bind_gemma(ConfigKeys& keys, DecoderConfig& c, int64_t pattern) {
  bind_shape(keys, c,
             {.num_key_value_heads = 4, .head_dim = 256, .activation = "hidden_activation"});
  c.embedding_scale = std::sqrt(static_cast<double>(c.hidden_size));
  keys.flag("attention_bias", c.qkv_bias);
  c.out_bias = c.qkv_bias;
  int64_t divided =
      c.attention_scale > 0 ? std::llround(1 / (c.attention_scale * c.attention_scale)) : 256;
  keys.integer("query_pre_attn_scalar", divided);
  c.attention_scale = 1 / std::sqrt(static_cast<double>(divided));
  keys.number_or_null("attn_logit_softcapping", c.attention_softcap, 0, 1e6);
  keys.number_or_null("final_logit_softcapping", c.logit_softcap, 0, 1e6);
  int64_t window = keys.reader() != nullptr ? 4096 : window_of(c);
  keys.integer_or_null("sliding_window", window);
  bind_layer_types(keys, c, window,
                   [&](size_t layer) { return (layer + 1) % static_cast<size_t>(pattern) != 0; });
  keys.off("use_bidirectional_attention");
  if (keys.reader() != nullptr) keys.reader()->ignore("hidden_act");  // not read by transformers
}

// The first of config.ropes rotates layers that attend to all tokens, the second sliding layers.
void bind_gemma3_ropes(ConfigKeys& keys, DecoderConfig& c) {
  nn::OptionReader* reader = keys.reader();
  if (reader == nullptr) {
    keys.write("rope_theta", c.ropes.at(0).theta);
    keys.write("rope_scaling", rope_scaling(c.ropes.at(0)));
    keys.write("rope_local_base_freq", c.ropes.at(1).theta);
    return;
  }
  nn::RopeOptions full{.theta = reader->number("rope_theta", 1e6, 1.0001, 1e15)};
  nn::RopeOptions sliding{.theta = reader->number("rope_local_base_freq", 1e4, 1.0001, 1e15)};
  const nn::Options* parameters = reader->nested("rope_parameters");
  const nn::Options* scaling = reader->nested("rope_scaling");
  const nn::Options* of_sliding = nullptr;
  if (parameters != nullptr) {
    nn::OptionReader both(*parameters, keys.family() + ".rope_parameters");
    scaling = both.nested("full_attention");
    of_sliding = both.nested("sliding_attention");
    keys.warn_unread(both);
  }
  read_rope(keys, scaling, "rope_scaling", c, full);
  read_rope(keys, of_sliding, "rope_parameters.sliding_attention", c, sliding);
  c.ropes = {full, sliding};
  for (DecoderLayer& layer : c.layers) layer.rope = layer.window > 0 ? 1 : 0;
}
}  // namespace

Family gemma2() {
  DecoderConfig defaults = gemma_defaults();
  defaults.attention_softcap = 50;
  defaults.logit_softcap = 30;
  return {.name = "gemma2",
          .doc = "Gemma 2",
          .architecture = "Gemma2ForCausalLM",
          .defaults = defaults,
          .bind = [](ConfigKeys& keys, DecoderConfig& c) {
            bind_gemma(keys, c, 2);
            bind_rope(keys, c);
          }};
}

Family gemma3_text() {
  DecoderConfig defaults = gemma_defaults();
  defaults.max_position_embeddings = 131072;
  defaults.names.q_norm = "q_norm";
  defaults.names.k_norm = "k_norm";
  return {.name = "gemma3_text",
          .doc = "Gemma 3, text; the text part of gemma3",
          .architecture = "Gemma3ForCausalLM",
          .defaults = defaults,
          .bind = [](ConfigKeys& keys, DecoderConfig& c) {
            int64_t pattern = 6;
            if (nn::OptionReader* reader = keys.reader())  // transformers 5 saves it with "_"
              for (const char* key : {"_sliding_window_pattern", "sliding_window_pattern"})
                pattern = reader->integer(key, pattern);
            bind_gemma(keys, c, pattern);
            bind_gemma3_ropes(keys, c);
          }};
}

// Published files leave out keys of `text_config` that have the default of transformers'
// Gemma3TextConfig, even sizes.
nn::Options text_part(const nn::Options& config) {
  nn::OptionReader reader(config, "gemma3");
  const nn::Option* type = config.find("model_type");
  if (type == nullptr || *type != nn::Option(std::string("gemma3"))) return config;
  const nn::Options* text = reader.nested("text_config");
  if (text == nullptr) throw Error(ErrorKind::usage, "[gemma3] text_config is required.");
  nn::Options part = text->over({{"vocab_size", int64_t{262208}},
                                 {"hidden_size", int64_t{2304}},
                                 {"intermediate_size", int64_t{9216}},
                                 {"num_hidden_layers", int64_t{26}},
                                 {"num_attention_heads", int64_t{8}}});
  for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id", "quantization_config",
                          "tie_word_embeddings"})
    if (const nn::Option* outer = config.find(key)) part.set(key, *outer);
  part.set("model_type", std::string("gemma3_text"));
  [[maybe_unused]] static const bool warned =
      (logging::warn("[gemma3] the vision part is left out: the model reads and writes text."),
       true);
  return part;
}

}  // namespace weft::models
