#include "weft/models/gpt.h"

#include <cmath>

#include "weft/models/zoo.h"

namespace weft::models {
namespace {
nn::Init matrix_init(const GptConfig& config) {
  return nn::Init::normal(0, config.initializer_range);
}
// The scale keeps the variance of the residual stream, to which each layer adds twice.
nn::Init residual_init(const GptConfig& config) {
  double layers = static_cast<double>(config.num_hidden_layers);
  return nn::Init::normal(0, config.initializer_range / std::sqrt(2 * layers));
}
nn::NormOptions norm_options(const GptConfig& config) {
  return {.eps = config.layer_norm_eps, .bias = config.bias};
}

// Block computes x += attn(ln_1(x)); x += c_proj(act(c_fc(ln_2(x)))).
class Block : public nn::Layer {
 public:
  Block(nn::Module& parent, std::string name, const GptConfig& config)
      : Layer(parent, std::move(name)),
        ln_1_(*this, "ln_1", config.hidden_size, norm_options(config)),
        attn_(*this, "attn", config.hidden_size, config.num_attention_heads,
              {.causal = true,
               .bias = config.bias,
               .dropout = config.dropout,
               .init = matrix_init(config),
               .out_init = residual_init(config),
               .qkv_name = "c_attn",
               .out_name = "c_proj"}),
        ln_2_(*this, "ln_2", config.hidden_size, norm_options(config)),
        c_fc_(*this, "c_fc", config.hidden_size, config.intermediate_size,
              {.bias = config.bias, .init = matrix_init(config)}),
        c_proj_(*this, "c_proj", config.intermediate_size, config.hidden_size,
                {.bias = config.bias, .init = residual_init(config)}),
        dropout_(*this, "dropout", config.dropout),
        activation_(nn::activation_function(config.hidden_act, "gpt")) {}

 protected:
  Tensor forward(const Tensor& x) const override {
    Tensor y = x + attn_(ln_1_(x));
    return y + dropout_(c_proj_(activation_(c_fc_(ln_2_(y)))));
  }

 private:
  nn::LayerNorm ln_1_;
  nn::SelfAttention attn_;
  nn::LayerNorm ln_2_;
  nn::Linear c_fc_, c_proj_;
  nn::Dropout dropout_;
  nn::ActivationFunction activation_;
};

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

Gpt::Gpt(const GptConfig& config)
    : Model(InputKind::tokens, config.options()),
      wte_(*this, "wte", config.vocab_size, config.hidden_size, {.init = matrix_init(config)}),
      wpe_(*this, "wpe", config.max_position_embeddings, config.hidden_size,
           {.init = matrix_init(config)}),
      dropout_(*this, "dropout", config.dropout),
      h_(*this, "h"),
      ln_f_(*this, "ln_f", config.hidden_size, norm_options(config)) {
  for (int64_t i = 0; i < config.num_hidden_layers; ++i) h_.add<Block>(completed(config));
}

Tensor Gpt::forward(const Tensor& tokens) const {
  int64_t longest = wpe_.weight.shape()[0];
  WEFT_CHECK(tokens.rank() == 2 && tokens.dim(1) <= longest,
             "[gpt] takes tokens [batch, length], length at most {}. Got {}.", longest,
             to_string(tokens.type()));
  Tensor positions = slice(wpe_.weight.value(), 0, 0, tokens.dim(1));
  Tensor x = h_(dropout_(wte_(tokens) + positions));
  return linear(ln_f_(x), wte_.weight.value());
}

}  // namespace weft::models
