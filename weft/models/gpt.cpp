#include "weft/models/gpt.h"

#include "weft/models/zoo.h"

namespace weft::models {
namespace {
GptConfig completed(GptConfig config) {
  if (config.intermediate_size == 0) config.intermediate_size = 4 * config.hidden_size;
  return config;
}
}  // namespace

GptConfig GptConfig::read(const nn::Options& config, const TaskShape& task) {
  check_task("gpt", InputKind::tokens, task);
  nn::OptionReader reader(config, "gpt");
  GptConfig c;
  reader.text("model_type", "gpt");
  c.vocab_size = reader.integer("vocab_size", task.classes, task.classes);
  c.max_position_embeddings =
      reader.integer("max_position_embeddings", task.input[0], task.input[0]);
  c.hidden_size = reader.integer("hidden_size", c.hidden_size);
  c.num_hidden_layers = reader.layers("num_hidden_layers", c.num_hidden_layers);
  c.num_attention_heads = reader.integer("num_attention_heads", c.num_attention_heads);
  if (c.hidden_size % c.num_attention_heads != 0)
    throw Error(ErrorKind::usage, "[gpt] num_attention_heads must divide hidden_size ({}). Got {}.",
                c.hidden_size, c.num_attention_heads);
  c.intermediate_size = reader.integer("intermediate_size", 4 * c.hidden_size);
  c.bias = reader.flag("bias", c.bias);
  c.hidden_act = reader.text("hidden_act", c.hidden_act);
  c.dropout = reader.number("dropout", c.dropout, 0, 1);
  c.layer_norm_eps = reader.number("layer_norm_eps", c.layer_norm_eps, 0, 1);
  c.initializer_range = reader.number("initializer_range", c.initializer_range, 0, 10);
  reader.finish();
  return c;
}

nn::Options GptConfig::options() const {
  return {{"model_type", std::string("gpt")},
          {"vocab_size", vocab_size},
          {"max_position_embeddings", max_position_embeddings},
          {"hidden_size", hidden_size},
          {"num_hidden_layers", num_hidden_layers},
          {"num_attention_heads", num_attention_heads},
          {"intermediate_size", completed(*this).intermediate_size},
          {"bias", bias},
          {"hidden_act", hidden_act},
          {"dropout", dropout},
          {"layer_norm_eps", layer_norm_eps},
          {"initializer_range", initializer_range}};
}

io::LoadOptions gpt2_layout() {
  return {.rename = {{"*.mlp.*", "*.*"}},
          .ignore = {"*.attn.bias", "*.attn.masked_bias", "lm_head.weight"},
          .transpose = {"*.c_attn.weight", "*.c_proj.weight", "*.c_fc.weight"}};
}

DecoderConfig GptConfig::decoder() const {
  DecoderConfig decoder{.vocab_size = vocab_size,
                        .max_position_embeddings = max_position_embeddings,
                        .hidden_size = hidden_size,
                        .intermediate_size = completed(*this).intermediate_size,
                        .num_attention_heads = num_attention_heads,
                        .num_key_value_heads = num_attention_heads,
                        .head_dim = hidden_size / num_attention_heads,
                        .norm = DecoderConfig::Norm::layer,
                        .norm_eps = layer_norm_eps,
                        .norm_bias = bias,
                        .qkv_bias = bias,
                        .out_bias = bias,
                        .mlp_bias = bias,
                        .tie_word_embeddings = true,
                        .hidden_act = hidden_act,
                        .dropout = dropout,
                        .initializer_range = initializer_range,
                        .scaled_residual_init = true,
                        .names = {.root = "",
                                  .tokens = "wte",
                                  .positions = "wpe",
                                  .layers = "h",
                                  .norm = "ln_f",
                                  .attention = "attn",
                                  .qkv = "c_attn",
                                  .out = "c_proj",
                                  .mlp = "",
                                  .gate = "",
                                  .up = "c_fc",
                                  .down = "c_proj",
                                  .attention_norm = "ln_1",
                                  .mlp_norm = "ln_2"}};
  decoder.layers.assign(static_cast<size_t>(num_hidden_layers), {.rope = -1});
  return decoder;
}

Gpt::Gpt(const GptConfig& config) : Decoder(config.decoder(), config.options()) {}

}  // namespace weft::models
