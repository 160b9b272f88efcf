#include "weft/models/llama.h"

#include "weft/models/zoo.h"

namespace weft::models {
namespace {
LlamaConfig completed(LlamaConfig config) {
  if (config.num_key_value_heads == 0) config.num_key_value_heads = config.num_attention_heads;
  if (config.head_dim == 0) config.head_dim = config.hidden_size / config.num_attention_heads;
  return config;
}
}  // namespace

LlamaConfig LlamaConfig::read(const nn::Options& config, const TaskShape& task) {
  check_task("llama", InputKind::tokens, task);
  nn::OptionReader reader(config, "llama");
  LlamaConfig c;
  reader.text("model_type", "llama");
  c.vocab_size = reader.integer("vocab_size", task.classes, task.classes);
  c.max_position_embeddings =
      reader.integer("max_position_embeddings", task.input[0], task.input[0]);
  c.hidden_size = reader.integer("hidden_size", c.hidden_size);
  c.intermediate_size = reader.integer("intermediate_size", c.intermediate_size);
  c.num_hidden_layers = reader.layers("num_hidden_layers", c.num_hidden_layers);
  c.num_attention_heads = reader.integer("num_attention_heads", c.num_attention_heads);
  c.num_key_value_heads = reader.integer("num_key_value_heads", c.num_attention_heads);
  if (c.num_attention_heads % c.num_key_value_heads != 0)
    throw Error(ErrorKind::usage,
                "[llama] num_key_value_heads must divide num_attention_heads ({}). Got {}.",
                c.num_attention_heads, c.num_key_value_heads);
  if (config.find("head_dim") == nullptr && c.hidden_size % c.num_attention_heads != 0)
    throw Error(ErrorKind::usage,
                "[llama] num_attention_heads must divide hidden_size ({}). Got {}.", c.hidden_size,
                c.num_attention_heads);
  c.head_dim = reader.integer("head_dim", c.hidden_size / c.num_attention_heads, 2);
  if (c.head_dim % 2 != 0)
    throw Error(ErrorKind::usage, "[llama] head_dim must be even. Got {}.", c.head_dim);
  c.hidden_act = reader.text("hidden_act", c.hidden_act);
  c.rope_theta = reader.number("rope_theta", c.rope_theta, 1, 1e12);
  c.rms_norm_eps = reader.number("rms_norm_eps", c.rms_norm_eps, 0, 1);
  c.tie_word_embeddings = reader.flag("tie_word_embeddings", c.tie_word_embeddings);
  c.initializer_range = reader.number("initializer_range", c.initializer_range, 0, 10);
  reader.finish();
  return c;
}

nn::Options LlamaConfig::options() const {
  LlamaConfig c = completed(*this);
  return {{"model_type", std::string("llama")},
          {"vocab_size", c.vocab_size},
          {"max_position_embeddings", c.max_position_embeddings},
          {"hidden_size", c.hidden_size},
          {"intermediate_size", c.intermediate_size},
          {"num_hidden_layers", c.num_hidden_layers},
          {"num_attention_heads", c.num_attention_heads},
          {"num_key_value_heads", c.num_key_value_heads},
          {"head_dim", c.head_dim},
          {"hidden_act", c.hidden_act},
          {"rope_theta", c.rope_theta},
          {"rms_norm_eps", c.rms_norm_eps},
          {"tie_word_embeddings", c.tie_word_embeddings},
          {"initializer_range", c.initializer_range}};
}

DecoderConfig LlamaConfig::decoder() const {
  const LlamaConfig c = completed(*this);
  DecoderConfig decoder{.vocab_size = c.vocab_size,
                        .max_position_embeddings = c.max_position_embeddings,
                        .hidden_size = c.hidden_size,
                        .intermediate_size = c.intermediate_size,
                        .num_attention_heads = c.num_attention_heads,
                        .num_key_value_heads = c.num_key_value_heads,
                        .head_dim = c.head_dim,
                        .norm_eps = c.rms_norm_eps,
                        .tie_word_embeddings = c.tie_word_embeddings,
                        .hidden_act = c.hidden_act,
                        .ropes = {{.theta = c.rope_theta}},
                        .initializer_range = c.initializer_range};
  decoder.layers.resize(static_cast<size_t>(c.num_hidden_layers));
  return decoder;
}

Llama::Llama(const LlamaConfig& config) : Decoder(config.decoder(), config.options()) {}

}  // namespace weft::models
