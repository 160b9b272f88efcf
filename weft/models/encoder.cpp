#include "weft/models/encoder.h"

#include "weft/nn/containers.h"
#include "weft/tensor/compile.h"

namespace weft::models {
namespace {
nn::Init matrix_init(const EncoderConfig& config) {
  return nn::Init::normal(0, config.initializer_range);
}
nn::LinearOptions linear_options(const EncoderConfig& config) {
  return {.init = matrix_init(config)};
}
nn::NormOptions norm_options(const EncoderConfig& config) { return {.eps = config.layer_norm_eps}; }

class Embeddings : public nn::Module {
 public:
  Embeddings(nn::Module& parent, std::string name, const EncoderConfig& config)
      : Module(parent, std::move(name)),
        word_embeddings(*this, "word_embeddings", config.vocab_size, config.hidden_size,
                        {.init = matrix_init(config), .padding_idx = config.pad_token_id}),
        position_embeddings_(
            *this, "position_embeddings", config.max_position_embeddings, config.hidden_size,
            {.init = matrix_init(config),
             .padding_idx = config.positions_after_pad ? config.pad_token_id : std::nullopt}),
        pad_(config.positions_after_pad ? config.pad_token_id : std::nullopt),
        dropout_(config.hidden_dropout) {
    if (config.type_vocab_size > 0)
      token_type_embeddings_ = std::make_unique<nn::Embedding>(
          *this, "token_type_embeddings", config.type_vocab_size, config.hidden_size,
          nn::EmbeddingOptions{.init = matrix_init(config)});
    norm_ = std::make_unique<nn::LayerNorm>(*this, "LayerNorm", config.hidden_size,
                                            norm_options(config));
  }
  nn::Embedding word_embeddings;

  int64_t longest() const {
    return position_embeddings_.weight.shape()[0] - (pad_ ? *pad_ + 1 : 0);
  }
  bool has_types() const { return token_type_embeddings_ != nullptr; }

  Tensor operator()(const Tensor& tokens, const Tensor& types) const {
    OriginScope scope(path());
    Tensor others = positions(tokens);
    if (types.defined())
      others = others + (*token_type_embeddings_)(types);
    else if (has_types())
      others = others + slice(token_type_embeddings_->weight.value(), 0, 0, 1);
    return dropout((*norm_)(word_embeddings(tokens) + others), dropout_);
  }

 private:
  // Returns the embeddings of positions [T, hidden_size], for RoBERTa [B, T, hidden_size]. RoBERTa
  // gives a pad the position pad_token_id, and counts other tokens from the next position on.
  Tensor positions(const Tensor& tokens) const {
    if (!pad_) return slice(position_embeddings_.weight.value(), 0, 0, tokens.dim(1));
    const Tensor counted = cast(tokens != *pad_, DType::i64);
    return position_embeddings_(cumsum(counted, 1) * counted + *pad_);
  }

  nn::Embedding position_embeddings_;
  std::unique_ptr<nn::Embedding> token_type_embeddings_;  // null without types
  std::unique_ptr<nn::LayerNorm> norm_;
  std::optional<int64_t> pad_;  // the padding token, for RoBERTa's positions
  double dropout_;
};

class EncoderLayer : public nn::Module {
 public:
  EncoderLayer(nn::Module& parent, std::string name, const EncoderConfig& config)
      : Module(parent, std::move(name)),
        query_(*this, config.names.query, config.hidden_size, config.hidden_size,
               linear_options(config)),
        key_(*this, config.names.key, config.hidden_size, config.hidden_size,
             linear_options(config)),
        value_(*this, config.names.value, config.hidden_size, config.hidden_size,
               linear_options(config)),
        attention_output_(*this, config.names.attention_output, config.hidden_size,
                          config.hidden_size, linear_options(config)),
        attention_norm_(*this, config.names.attention_norm, config.hidden_size,
                        norm_options(config)),
        intermediate_(*this, config.names.intermediate, config.hidden_size,
                      config.intermediate_size, linear_options(config)),
        output_(*this, config.names.output, config.intermediate_size, config.hidden_size,
                linear_options(config)),
        output_norm_(*this, config.names.output_norm, config.hidden_size, norm_options(config)),
        activation_(nn::activation_function(config.hidden_act, config.model_type)),
        heads_(config.num_attention_heads),
        dropout_(config.hidden_dropout),
        attention_dropout_(config.attention_dropout),
        projection_dropout_(config.projection_dropout) {}

  // `mask` is bool [B, 1, 1, T], true where a token is attended to; empty means everywhere.
  Tensor operator()(const Tensor& x, const Tensor& mask) const {
    OriginScope scope(path());
    const Tensor y =
        attention_norm_(dropout(attention_output_(attend(x, mask)), projection_dropout_) + x);
    return output_norm_(dropout(output_(activation_(intermediate_(y))), dropout_) + y);
  }

 private:
  Tensor attend(const Tensor& x, const Tensor& mask) const {
    auto split = [&](const Tensor& y) {  // [B, T, width] -> [B, heads, T, width / heads]
      return permute(reshape(y, {y.dim(0), y.dim(1), heads_, -1}), {0, 2, 1, 3});
    };
    AttentionOptions options{.mask = mask};
    if (attention_dropout_ > 0 && current_mode() == Mode::train) {
      options.dropout = attention_dropout_;
      options.key = next_random_key();
    }
    const Tensor y = attention(split(query_(x)), split(key_(x)), split(value_(x)), options);
    return flatten(permute(y, {0, 2, 1, 3}), 2);
  }

  nn::Linear query_, key_, value_, attention_output_;
  nn::LayerNorm attention_norm_;
  nn::Linear intermediate_, output_;
  nn::LayerNorm output_norm_;
  nn::ActivationFunction activation_;
  int64_t heads_;
  double dropout_, attention_dropout_, projection_dropout_;
};

// MaskedHead computes decoder(norm(act(dense(x)))); the decoder is the embedding and a bias.
class MaskedHead : public nn::Layer {
 public:
  MaskedHead(nn::Module& parent, const EncoderConfig& config, const Variable& embedding)
      : Layer(parent, config.names.head),
        bias_(parameter(config.names.head_output, {config.vocab_size}, nn::Init::constant(0))),
        dense_(*this, config.names.head_dense, config.hidden_size, config.hidden_size,
               linear_options(config)),
        norm_(*this, config.names.head_norm, config.hidden_size, norm_options(config)),
        activation_(nn::activation_function(config.head_act, config.model_type)),
        embedding_(embedding) {}

 protected:
  Tensor forward(const Tensor& x) const override {
    return linear(norm_(activation_(dense_(x))), embedding_.value(), bias_.value());
  }

 private:
  Variable bias_;
  nn::Linear dense_;
  nn::LayerNorm norm_;
  nn::ActivationFunction activation_;
  Variable embedding_;
};

// TokenHead computes classifier(dropout(x)).
class TokenHead : public nn::Layer {
 public:
  TokenHead(nn::Module& parent, const EncoderConfig& config)
      : Layer(parent, config.names.head),
        classifier_(*this, config.names.head_output, config.hidden_size, config.num_labels,
                    linear_options(config)),
        dropout_(config.classifier_dropout) {}

 protected:
  Tensor forward(const Tensor& x) const override { return classifier_(dropout(x, dropout_)); }

 private:
  nn::Linear classifier_;
  double dropout_;
};

// SampleHead computes classifier(dropout(act(dense(first token)))).
class SampleHead : public nn::Layer {
 public:
  SampleHead(nn::Module& parent, const EncoderConfig& config)
      : Layer(parent, config.names.head),
        dense_(*this, config.names.head_dense, config.hidden_size, config.hidden_size,
               linear_options(config)),
        classifier_(*this, config.names.head_output, config.hidden_size, config.num_labels,
                    linear_options(config)),
        activation_(nn::activation_function(config.head_act, config.model_type)),
        first_dropout_(config.dropout_of_first_token ? config.classifier_dropout : 0),
        dropout_(config.classifier_dropout) {}

 protected:
  Tensor forward(const Tensor& x) const override {
    const Tensor first = dropout(squeeze(slice(x, 1, 0, 1), 1), first_dropout_);
    return classifier_(dropout(activation_(dense_(first)), dropout_));
  }

 private:
  nn::Linear dense_, classifier_;
  nn::ActivationFunction activation_;
  double first_dropout_, dropout_;
};

std::unique_ptr<nn::Layer> make_head(nn::Module& parent, const EncoderConfig& config,
                                     const Variable& embedding) {
  switch (config.head) {
    case EncoderHead::token_labels:
      return std::make_unique<TokenHead>(parent, config);
    case EncoderHead::sample_label:
      return std::make_unique<SampleHead>(parent, config);
    case EncoderHead::masked_tokens:
      break;
  }
  return std::make_unique<MaskedHead>(parent, config, embedding);
}
}  // namespace

class EncoderStack : public nn::Module {
 public:
  EncoderStack(nn::Module& parent, const EncoderConfig& config)
      : Module(parent, config.names.encoder),
        embeddings(*this, "embeddings", config),
        layers_(*this, config.names.layers),
        owner_(config.model_type) {
    for (int64_t i = 0; i < config.num_hidden_layers; ++i) layers_.add(config);
  }
  Embeddings embeddings;

  Tensor operator()(const Tensor& tokens, const EncoderInputs& inputs) const {
    OriginScope scope(path());
    check(tokens, inputs);
    Tensor mask = inputs.attention_mask;
    if (mask.defined()) {
      mask = mask.dtype() == DType::boolean ? mask : mask != 0;
      mask = reshape(mask, {tokens.dim(0), 1, 1, tokens.dim(1)});
    }
    Tensor x = embeddings(tokens, inputs.token_type_ids);
    for (const EncoderLayer& layer : layers_) x = layer(x, mask);
    return x;
  }

 private:
  void check(const Tensor& tokens, const EncoderInputs& inputs) const {
    WEFT_CHECK(tokens.rank() == 2 && tokens.dim(1) <= embeddings.longest(),
               "[{}] takes tokens [batch, length], length at most {}. Got {}.", owner_,
               embeddings.longest(), to_string(tokens.type()));
    const Tensor &mask = inputs.attention_mask, &types = inputs.token_type_ids;
    WEFT_CHECK(!mask.defined() || (mask.shape() == tokens.shape() && !is_float(mask.dtype())),
               "[{}] takes an attention_mask of bool or integers {}. Got {}.", owner_,
               to_string(tokens.shape()), to_string(mask.type()));
    WEFT_CHECK(!types.defined() || embeddings.has_types(), "[{}] takes no token_type_ids.", owner_);
    WEFT_CHECK(!types.defined() || (types.shape() == tokens.shape() && is_integer(types.dtype())),
               "[{}] takes token_type_ids as integers {}. Got {}.", owner_,
               to_string(tokens.shape()), to_string(types.type()));
  }

  nn::ModuleList<EncoderLayer> layers_;
  std::string owner_;
};

Encoder::Encoder(const EncoderConfig& config, nn::Options published)
    : Model(InputKind::tokens, std::move(published)),
      config_(config),
      encoder_(std::make_unique<EncoderStack>(*this, config)),
      head_(make_head(*this, config, encoder_->embeddings.word_embeddings.weight)) {}
Encoder::~Encoder() = default;

int64_t Encoder::context() const { return encoder_->embeddings.longest(); }

Tensor Encoder::operator()(const Arg& tokens, const EncoderInputs& inputs) const {
  OriginScope scope(path(), tokens.where);
  WEFT_CHECK(tokens.value.defined(), "[{}] takes tokens.", encoder_->path());
  return run(tokens.value, inputs);
}

Tensor Encoder::run(const Tensor& tokens, const EncoderInputs& inputs) const {
  EncoderInputs all = inputs;
  if (hides_padding_ && config_.pad_token_id && !all.attention_mask.defined())
    all.attention_mask = tokens != *config_.pad_token_id;
  return (*head_)((*encoder_)(tokens, all));
}

}  // namespace weft::models
