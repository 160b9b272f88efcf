#include "weft/models/llama.h"

#include "weft/models/zoo.h"
#include "weft/nn/containers.h"

namespace weft::models {
namespace {
nn::LinearOptions linear_options(const LlamaConfig& config) {
  return {.bias = false, .init = nn::Init::normal(0, config.initializer_range)};
}

class Attention : public nn::Module {
 public:
  Attention(nn::Module& parent, std::string name, const LlamaConfig& config)
      : Module(parent, std::move(name)),
        q_proj_(*this, "q_proj", config.hidden_size, config.num_attention_heads * config.head_dim,
                linear_options(config)),
        k_proj_(*this, "k_proj", config.hidden_size, config.num_key_value_heads * config.head_dim,
                linear_options(config)),
        v_proj_(*this, "v_proj", config.hidden_size, config.num_key_value_heads * config.head_dim,
                linear_options(config)),
        o_proj_(*this, "o_proj", config.num_attention_heads * config.head_dim, config.hidden_size,
                linear_options(config)),
        head_dim_(config.head_dim) {}

  Tensor operator()(const Tensor& x, const nn::Rotary& rotary) const {
    OriginScope scope(path());
    Tensor y =
        attention(nn::rotate(heads(q_proj_(x)), rotary), nn::rotate(heads(k_proj_(x)), rotary),
                  heads(v_proj_(x)), {.causal = true});
    return o_proj_(flatten(permute(y, {0, 2, 1, 3}), 2));
  }

 private:
  // Maps [B, T, heads * head_dim] to [B, heads, T, head_dim].
  Tensor heads(const Tensor& x) const {
    return permute(reshape(x, {x.dim(0), x.dim(1), -1, head_dim_}), {0, 2, 1, 3});
  }

  nn::Linear q_proj_, k_proj_, v_proj_, o_proj_;
  int64_t head_dim_;
};

// GatedMlp computes down_proj(act(gate_proj(x)) * up_proj(x)).
class GatedMlp : public nn::Layer {
 public:
  GatedMlp(nn::Module& parent, std::string name, const LlamaConfig& config)
      : Layer(parent, std::move(name)),
        gate_proj_(*this, "gate_proj", config.hidden_size, config.intermediate_size,
                   linear_options(config)),
        up_proj_(*this, "up_proj", config.hidden_size, config.intermediate_size,
                 linear_options(config)),
        down_proj_(*this, "down_proj", config.intermediate_size, config.hidden_size,
                   linear_options(config)),
        activation_(nn::activation_function(config.hidden_act, "llama")) {}

 protected:
  Tensor forward(const Tensor& x) const override {
    return down_proj_(activation_(gate_proj_(x)) * up_proj_(x));
  }

 private:
  nn::Linear gate_proj_, up_proj_, down_proj_;
  nn::ActivationFunction activation_;
};

// DecoderLayer computes x += self_attn(input_layernorm(x)); x += mlp(post_attention_layernorm(x)).
class DecoderLayer : public nn::Module {
 public:
  DecoderLayer(nn::Module& parent, std::string name, const LlamaConfig& config)
      : Module(parent, std::move(name)),
        self_attn_(*this, "self_attn", config),
        mlp_(*this, "mlp", config),
        input_layernorm_(*this, "input_layernorm", config.hidden_size, config.rms_norm_eps),
        post_attention_layernorm_(*this, "post_attention_layernorm", config.hidden_size,
                                  config.rms_norm_eps) {}

  Tensor operator()(const Tensor& x, const nn::Rotary& rotary) const {
    OriginScope scope(path());
    Tensor y = x + self_attn_(input_layernorm_(x), rotary);
    return y + mlp_(post_attention_layernorm_(y));
  }

 private:
  Attention self_attn_;
  GatedMlp mlp_;
  nn::RMSNorm input_layernorm_, post_attention_layernorm_;
};

LlamaConfig completed(LlamaConfig config) {
  if (config.num_key_value_heads == 0) config.num_key_value_heads = config.num_attention_heads;
  if (config.head_dim == 0) config.head_dim = config.hidden_size / config.num_attention_heads;
  return config;
}
}  // namespace

class LlamaDecoder : public nn::Layer {
 public:
  LlamaDecoder(nn::Module& parent, std::string name, const LlamaConfig& config)
      : Layer(parent, std::move(name)),
        embed_tokens(*this, "embed_tokens", config.vocab_size, config.hidden_size,
                     {.init = nn::Init::normal(0, config.initializer_range)}),
        layers_(*this, "layers"),
        norm_(*this, "norm", config.hidden_size, config.rms_norm_eps),
        config_(config) {
    for (int64_t i = 0; i < config.num_hidden_layers; ++i) layers_.add(config);
  }
  nn::Embedding embed_tokens;

 protected:
  Tensor forward(const Tensor& tokens) const override {
    WEFT_CHECK(tokens.rank() == 2 && tokens.dim(1) <= config_.max_position_embeddings,
               "[llama] takes tokens [batch, length], length at most {}. Got {}.",
               config_.max_position_embeddings, to_string(tokens.type()));
    Tensor x = embed_tokens(tokens);
    nn::Rotary rotary = nn::rotary(tokens.dim(1), config_.head_dim, config_.rope_theta, x.dtype());
    for (const DecoderLayer& layer : layers_) x = layer(x, rotary);
    return norm_(x);
  }

 private:
  nn::ModuleList<DecoderLayer> layers_;
  nn::RMSNorm norm_;
  LlamaConfig config_;
};

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

Llama::Llama(const LlamaConfig& config)
    : Model(InputKind::tokens, config.options()),
      model_(std::make_unique<LlamaDecoder>(*this, "model", completed(config))) {
  if (!config.tie_word_embeddings)
    lm_head_ = std::make_unique<nn::Linear>(*this, "lm_head", config.hidden_size, config.vocab_size,
                                            linear_options(config));
}
Llama::~Llama() = default;

Tensor Llama::forward(const Tensor& tokens) const {
  Tensor x = (*model_)(tokens);
  return lm_head_ ? (*lm_head_)(x) : linear(x, model_->embed_tokens.weight.value());
}

}  // namespace weft::models
