#include <algorithm>

#include "weft/base/error.h"
#include "weft/models/families/families.h"

namespace weft::models {
namespace {
void bind_heads(ConfigKeys& keys, DecoderConfig& c, const ShapeDefaults& defaults) {
  keys.required("num_attention_heads", c.num_attention_heads);
  if (keys.reader() != nullptr)
    c.num_key_value_heads =
        defaults.num_key_value_heads > 0 && !keys.reader()->has("num_key_value_heads")
            ? defaults.num_key_value_heads
            : c.num_attention_heads;
  keys.integer("num_key_value_heads", c.num_key_value_heads);
  if (c.num_attention_heads % c.num_key_value_heads != 0)
    throw Error(ErrorKind::usage,
                "[{}] num_key_value_heads must divide num_attention_heads ({}). Got {}.",
                keys.family(), c.num_attention_heads, c.num_key_value_heads);
  if (keys.reader() != nullptr)
    c.head_dim = defaults.head_dim > 0 ? defaults.head_dim : c.hidden_size / c.num_attention_heads;
  keys.integer("head_dim", c.head_dim, 0);
  if (c.head_dim == 0 || c.head_dim * c.num_attention_heads > most_features)
    throw Error(ErrorKind::usage,
                "[{}] num_attention_heads ({}) times the width of a head must be between 1 and {}. "
                "Got a width of {}.",
                keys.family(), c.num_attention_heads, most_features, c.head_dim);
}
}  // namespace

void bind_shape(ConfigKeys& keys, DecoderConfig& c, const ShapeDefaults& defaults) {
  keys.required("vocab_size", c.vocab_size, most_tokens);
  keys.required("hidden_size", c.hidden_size);
  keys.required("intermediate_size", c.intermediate_size);
  auto layers = static_cast<int64_t>(c.layers.size());
  keys.required("num_hidden_layers", layers, nn::most_layers);
  c.layers.resize(static_cast<size_t>(layers));
  bind_heads(keys, c, defaults);
  keys.integer("max_position_embeddings", c.max_position_embeddings, 1, most_tokens);
  keys.activation(defaults.activation, c.hidden_act);
  keys.number("rms_norm_eps", c.norm_eps, 0, 1);
  keys.flag("tie_word_embeddings", c.tie_word_embeddings);
  keys.number("initializer_range", c.initializer_range, 0, 10);
  keys.number("attention_dropout", c.attention_dropout, 0, 1);
}

int64_t window_of(const DecoderConfig& config) {
  int64_t window = 0;
  for (const DecoderLayer& layer : config.layers) window = std::max(window, layer.window);
  return window;
}

void bind_window(ConfigKeys& keys, DecoderConfig& config, int64_t otherwise) {
  int64_t window = keys.reader() != nullptr ? otherwise : window_of(config);
  keys.integer_or_null("sliding_window", window);
  for (DecoderLayer& layer : config.layers) layer.window = window;
}

void bind_layer_types(ConfigKeys& keys, DecoderConfig& config, int64_t window,
                      const std::function<bool(size_t layer)>& slides) {
  const std::string sliding = "sliding_attention", full = "full_attention";
  nn::OptionReader* reader = keys.reader();
  if (reader == nullptr) {
    std::vector<std::string> types;
    for (const DecoderLayer& layer : config.layers)
      types.push_back(layer.window > 0 ? sliding : full);
    return keys.write("layer_types", types);
  }
  const std::vector<std::string> types = reader->texts("layer_types");
  if (!types.empty() && types.size() != config.layers.size())
    throw Error(ErrorKind::usage,
                "[{}] layer_types must have a type for each of {} layers. Got {}.", keys.family(),
                config.layers.size(), types.size());
  for (size_t i = 0; i < config.layers.size(); ++i) {
    if (!types.empty() && types[i] != sliding && types[i] != full)
      throw Error(ErrorKind::usage, "[{}] layer_types must be \"{}\" or \"{}\". Got {}.",
                  keys.family(), sliding, full, nn::to_string(nn::Option(types[i].substr(0, 60))));
    config.layers[i].window = (types.empty() ? slides(i) : types[i] == sliding) ? window : 0;
  }
}

}  // namespace weft::models
