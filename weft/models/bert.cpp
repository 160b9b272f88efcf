#include "weft/models/bert.h"

#include "weft/models/zoo.h"
#include "weft/nn/containers.h"

namespace weft::models {
namespace {
nn::Init matrix_init(const BertConfig& config) {
  return nn::Init::normal(0, config.initializer_range);
}
nn::LinearOptions linear_options(const BertConfig& config) { return {.init = matrix_init(config)}; }
nn::NormOptions norm_options(const BertConfig& config) { return {.eps = config.layer_norm_eps}; }

class Embeddings : public nn::Module {
 public:
  Embeddings(nn::Module& parent, std::string name, const BertConfig& config)
      : Module(parent, std::move(name)),
        word_embeddings(*this, "word_embeddings", config.vocab_size, config.hidden_size,
                        {.init = matrix_init(config)}),
        position_embeddings_(*this, "position_embeddings", config.max_position_embeddings,
                             config.hidden_size, {.init = matrix_init(config)}),
        token_type_embeddings_(*this, "token_type_embeddings", config.type_vocab_size,
                               config.hidden_size, {.init = matrix_init(config)}),
        norm_(*this, "LayerNorm", config.hidden_size, norm_options(config)),
        dropout_(*this, "dropout", config.hidden_dropout_prob) {}
  nn::Embedding word_embeddings;

  Tensor operator()(const Tensor& tokens, const Tensor& types) const {
    OriginScope scope(path());
    Tensor positions = slice(position_embeddings_.weight.value(), 0, 0, tokens.dim(1));
    Tensor type = types.defined() ? token_type_embeddings_(types)
                                  : slice(token_type_embeddings_.weight.value(), 0, 0, 1);
    return dropout_(norm_(word_embeddings(tokens) + (positions + type)));
  }

 private:
  nn::Embedding position_embeddings_, token_type_embeddings_;
  nn::LayerNorm norm_;
  nn::Dropout dropout_;
};

// Output computes LayerNorm(dropout(dense(x)) + residual).
class Output : public nn::Module {
 public:
  Output(nn::Module& parent, std::string name, int64_t width, const BertConfig& config)
      : Module(parent, std::move(name)),
        dense_(*this, "dense", width, config.hidden_size, linear_options(config)),
        norm_(*this, "LayerNorm", config.hidden_size, norm_options(config)),
        dropout_(*this, "dropout", config.hidden_dropout_prob) {}
  Tensor operator()(const Tensor& x, const Tensor& residual) const {
    OriginScope scope(path());
    return norm_(dropout_(dense_(x)) + residual);
  }

 private:
  nn::Linear dense_;
  nn::LayerNorm norm_;
  nn::Dropout dropout_;
};

class SelfAttention : public nn::Module {
 public:
  SelfAttention(nn::Module& parent, std::string name, const BertConfig& config)
      : Module(parent, std::move(name)),
        query_(*this, "query", config.hidden_size, config.hidden_size, linear_options(config)),
        key_(*this, "key", config.hidden_size, config.hidden_size, linear_options(config)),
        value_(*this, "value", config.hidden_size, config.hidden_size, linear_options(config)),
        heads_(config.num_attention_heads) {}

  // `mask` is bool [B, 1, 1, T], true where a token is attended to; empty means everywhere.
  Tensor operator()(const Tensor& x, const Tensor& mask) const {
    OriginScope scope(path());
    auto split = [&](const Tensor& y) {  // [B, T, width] -> [B, heads, T, width / heads]
      return permute(reshape(y, {y.dim(0), y.dim(1), heads_, -1}), {0, 2, 1, 3});
    };
    Tensor y = attention(split(query_(x)), split(key_(x)), split(value_(x)), {.mask = mask});
    return flatten(permute(y, {0, 2, 1, 3}), 2);
  }

 private:
  nn::Linear query_, key_, value_;
  int64_t heads_;
};

class Attention : public nn::Module {
 public:
  Attention(nn::Module& parent, std::string name, const BertConfig& config)
      : Module(parent, std::move(name)),
        self_(*this, "self", config),
        output_(*this, "output", config.hidden_size, config) {}

  Tensor operator()(const Tensor& x, const Tensor& mask) const {
    OriginScope scope(path());
    return output_(self_(x, mask), x);
  }

 private:
  SelfAttention self_;
  Output output_;
};

class Intermediate : public nn::Layer {
 public:
  Intermediate(nn::Module& parent, std::string name, const BertConfig& config)
      : Layer(parent, std::move(name)),
        dense_(*this, "dense", config.hidden_size, config.intermediate_size,
               linear_options(config)),
        activation_(nn::activation_function(config.hidden_act, "bert")) {}

 protected:
  Tensor forward(const Tensor& x) const override { return activation_(dense_(x)); }

 private:
  nn::Linear dense_;
  nn::ActivationFunction activation_;
};

class EncoderLayer : public nn::Module {
 public:
  EncoderLayer(nn::Module& parent, std::string name, const BertConfig& config)
      : Module(parent, std::move(name)),
        attention_(*this, "attention", config),
        intermediate_(*this, "intermediate", config),
        output_(*this, "output", config.intermediate_size, config) {}

  Tensor operator()(const Tensor& x, const Tensor& mask) const {
    OriginScope scope(path());
    Tensor y = attention_(x, mask);
    return output_(intermediate_(y), y);
  }

 private:
  Attention attention_;
  Intermediate intermediate_;
  Output output_;
};

// Pooler computes tanh(dense(first token)).
class Pooler : public nn::Layer {
 public:
  Pooler(nn::Module& parent, std::string name, const BertConfig& config)
      : Layer(parent, std::move(name)),
        dense_(*this, "dense", config.hidden_size, config.hidden_size, linear_options(config)) {}

 protected:
  Tensor forward(const Tensor& x) const override {
    return tanh(dense_(squeeze(slice(x, 1, 0, 1), 1)));
  }

 private:
  nn::Linear dense_;
};
}  // namespace

class BertEncoder : public nn::Module {
 public:
  BertEncoder(nn::Module& parent, std::string name, const BertConfig& config)
      : Module(parent, std::move(name)),
        embeddings(*this, "embeddings", config),
        encoder_(*this, "encoder"),
        layer_(encoder_, "layer"),
        longest_(config.max_position_embeddings) {
    for (int64_t i = 0; i < config.num_hidden_layers; ++i) layer_.add(config);
    if (config.num_labels > 0) pooler_ = std::make_unique<Pooler>(*this, "pooler", config);
  }
  Embeddings embeddings;

  // Returns [B, T, hidden_size], or the pooled first token [B, hidden_size] if there is a pooler.
  Tensor operator()(const Tensor& tokens, const BertInputs& inputs) const {
    OriginScope scope(path());
    WEFT_CHECK(tokens.rank() == 2 && tokens.dim(1) <= longest_,
               "[bert] takes tokens [batch, length], length at most {}. Got {}.", longest_,
               to_string(tokens.type()));
    Tensor mask = inputs.attention_mask;
    WEFT_CHECK(!mask.defined() || (mask.shape() == tokens.shape() && !is_float(mask.dtype())),
               "[bert] takes an attention_mask of bool or integers {}. Got {}.",
               to_string(tokens.shape()), to_string(mask.type()));
    const Tensor& types = inputs.token_type_ids;
    WEFT_CHECK(!types.defined() || (types.shape() == tokens.shape() && is_integer(types.dtype())),
               "[bert] takes token_type_ids as integers {}. Got {}.", to_string(tokens.shape()),
               to_string(types.type()));
    if (mask.defined()) {
      mask = mask.dtype() == DType::boolean ? mask : mask != 0;
      mask = reshape(mask, {tokens.dim(0), 1, 1, tokens.dim(1)});
    }
    Tensor x = embeddings(tokens, types);
    for (const EncoderLayer& layer : layer_) x = layer(x, mask);
    return pooler_ ? (*pooler_)(x) : x;
  }

 private:
  nn::Module encoder_;
  nn::ModuleList<EncoderLayer> layer_;
  std::unique_ptr<Pooler> pooler_;
  int64_t longest_;
};

// BertHead computes decoder(LayerNorm(act(dense(x)))); the decoder is the embedding and a bias.
class BertHead : public nn::Module {
 public:
  BertHead(nn::Module& parent, std::string name, const BertConfig& config,
           const Variable& embedding)
      : Module(parent, std::move(name)),
        predictions_(*this, "predictions", config.vocab_size),
        transform_(predictions_, "transform"),
        dense_(transform_, "dense", config.hidden_size, config.hidden_size, linear_options(config)),
        norm_(transform_, "LayerNorm", config.hidden_size, norm_options(config)),
        activation_(nn::activation_function(config.hidden_act, "bert")),
        embedding_(embedding) {}
  Tensor operator()(const Tensor& x) const {
    OriginScope scope(path());
    return linear(norm_(activation_(dense_(x))), embedding_.value(), predictions_.bias.value());
  }

 private:
  struct Predictions : nn::Module {
    Predictions(nn::Module& parent, std::string name, int64_t vocabulary)
        : Module(parent, std::move(name)),
          bias(parameter("bias", {vocabulary}, nn::Init::constant(0))) {}
    Variable bias;
  };

  Predictions predictions_;
  nn::Module transform_;
  nn::Linear dense_;
  nn::LayerNorm norm_;
  nn::ActivationFunction activation_;
  Variable embedding_;
};

BertConfig BertConfig::read(const nn::Options& config, const TaskShape& task) {
  check_task("bert", InputKind::tokens, task, Labels::any);
  nn::OptionReader reader(config, "bert");
  BertConfig c;
  reader.text("model_type", "bert");
  int64_t vocabulary = task.labels_tokens() ? task.classes : task.vocabulary;
  c.vocab_size = reader.integer("vocab_size", vocabulary, vocabulary);
  c.num_labels = reader.integer("num_labels", task.labels_tokens() ? 0 : task.classes, 0);
  c.max_position_embeddings =
      reader.integer("max_position_embeddings", task.input[0], task.input[0]);
  c.type_vocab_size = reader.integer("type_vocab_size", c.type_vocab_size);
  c.hidden_size = reader.integer("hidden_size", c.hidden_size);
  c.num_hidden_layers = reader.layers("num_hidden_layers", c.num_hidden_layers);
  c.num_attention_heads = reader.integer("num_attention_heads", c.num_attention_heads);
  if (c.hidden_size % c.num_attention_heads != 0)
    throw Error(ErrorKind::usage,
                "[bert] num_attention_heads must divide hidden_size ({}). Got {}.", c.hidden_size,
                c.num_attention_heads);
  c.intermediate_size = reader.integer("intermediate_size", 4 * c.hidden_size);
  c.hidden_act = reader.text("hidden_act", c.hidden_act);
  c.hidden_dropout_prob = reader.number("hidden_dropout_prob", c.hidden_dropout_prob, 0, 1);
  c.layer_norm_eps = reader.number("layer_norm_eps", c.layer_norm_eps, 0, 1);
  c.initializer_range = reader.number("initializer_range", c.initializer_range, 0, 10);
  reader.finish();
  return c;
}

nn::Options BertConfig::options() const {
  return {{"model_type", std::string("bert")},
          {"vocab_size", vocab_size},
          {"num_labels", num_labels},
          {"max_position_embeddings", max_position_embeddings},
          {"type_vocab_size", type_vocab_size},
          {"hidden_size", hidden_size},
          {"num_hidden_layers", num_hidden_layers},
          {"num_attention_heads", num_attention_heads},
          {"intermediate_size", intermediate_size},
          {"hidden_act", hidden_act},
          {"hidden_dropout_prob", hidden_dropout_prob},
          {"layer_norm_eps", layer_norm_eps},
          {"initializer_range", initializer_range}};
}

Bert::Bert(const BertConfig& config)
    : Model(InputKind::tokens, config.options()),
      bert_(std::make_unique<BertEncoder>(*this, "bert", config)),
      dropout_(*this, "dropout", config.num_labels > 0 ? config.hidden_dropout_prob : 0) {
  if (config.num_labels > 0)
    classifier_ = std::make_unique<nn::Linear>(*this, "classifier", config.hidden_size,
                                               config.num_labels, linear_options(config));
  else
    cls_ =
        std::make_unique<BertHead>(*this, "cls", config, bert_->embeddings.word_embeddings.weight);
}
Bert::~Bert() = default;

Tensor Bert::operator()(const Arg& tokens, const BertInputs& inputs) const {
  OriginScope scope(path(), tokens.where);
  WEFT_CHECK(tokens.value.defined(), "[bert] takes tokens.");
  return run(tokens.value, inputs);
}

Tensor Bert::run(const Tensor& tokens, const BertInputs& inputs) const {
  Tensor x = (*bert_)(tokens, inputs);
  return classifier_ ? (*classifier_)(dropout_(x)) : (*cls_)(x);
}

}  // namespace weft::models
