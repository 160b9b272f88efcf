// This is one file because attention, feed-forward layers and blocks are parts of the one decoder
// that all families configure, and share its config.
#include "weft/models/decoder.h"

#include <cmath>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "weft/base/memory/buffer.h"
#include "weft/io/safetensors.h"
#include "weft/models/family.h"
#include "weft/nn/containers.h"
#include "weft/nn/layers.h"
#include "weft/nn/moe.h"
#include "weft/tensor/compile.h"

namespace weft::models {
namespace {
using Config = DecoderConfig;

// The variables of a cache are the keys and the values of each layer, then the cosines [capacity,
// half] and the sines [capacity, 2 half] of each rope.
const Variable& cached_keys(const TokenCache& cache, size_t layer) {
  return cache.variables[2 * layer];
}
const Variable& cached_values(const TokenCache& cache, size_t layer) {
  return cache.variables[2 * layer + 1];
}
const Variable& cached_cos(const TokenCache& cache, const Config& config, size_t rope) {
  return cache.variables[2 * (config.layers.size() + rope)];
}
const Variable& cached_sin(const TokenCache& cache, const Config& config, size_t rope) {
  return cache.variables[2 * (config.layers.size() + rope) + 1];
}

// Positions says where the tokens of a step are in their sequences.
struct Positions {
  const TokenCache* cache = nullptr;  // null: whole sequences
  Tensor start = {};                  // position of each row's first token [B], with a cache
  Tensor places = {};                 // position of each token [B, T]; empty: 0, 1, 2 and so on
  Tensor mask = {};                   // keys that each query attends to; empty: all before it
  std::vector<nn::Rotary> ropes;      // rotations of these positions
};

nn::Init matrix_init(const Config& config) { return nn::Init::normal(0, config.initializer_range); }
// The scale keeps the variance of the residual stream, to which each layer adds twice.
nn::Init residual_init(const Config& config) {
  const double adds =
      config.scaled_residual_init ? 2 * static_cast<double>(config.layers.size()) : 1;
  return nn::Init::normal(0, config.initializer_range / std::sqrt(adds));
}

std::unique_ptr<nn::Layer> norm(nn::Module& parent, const std::string& name, int64_t features,
                                const Config& config) {
  if (name.empty()) return nullptr;
  if (config.norm == Config::Norm::layer)
    return std::make_unique<nn::LayerNorm>(
        parent, name, features, nn::NormOptions{.eps = config.norm_eps, .bias = config.norm_bias});
  const double offset = config.norm == Config::Norm::rms_plus_one ? 1 : 0;
  return std::make_unique<nn::RMSNorm>(
      parent, name, features, nn::RMSNormOptions{.eps = config.norm_eps, .offset = offset});
}
Tensor through(const std::unique_ptr<nn::Layer>& layer, const Tensor& x) {
  return layer ? (*layer)(x) : x;
}

std::unique_ptr<nn::Linear> linear(nn::Module& parent, const std::string& name, int64_t in,
                                   int64_t out, bool bias, const nn::Init& init,
                                   const Config& config) {
  if (name.empty()) return nullptr;
  return std::make_unique<nn::Linear>(
      parent, name, in, out,
      nn::LinearOptions{.bias = bias, .init = init, .transposed = config.transposed});
}

class Attention : public nn::Module {
 public:
  Attention(nn::Module& parent, std::string name, const Config& config, size_t layer)
      : Module(parent, std::move(name)),
        config_(config),
        layer_(layer),
        heads_(config.num_attention_heads),
        key_heads_(config.num_key_value_heads) {
    const DecoderNames& names = config.names;
    const int64_t width = config.hidden_size, depth = config.head_dim;
    const int64_t queries = heads_ * depth, keys = key_heads_ * depth;
    auto project = [&](const std::string& to, int64_t out) {
      return linear(*this, to, width, out, config.qkv_bias, matrix_init(config), config);
    };
    if (names.qkv.empty()) {
      q_ = project(names.q, queries), k_ = project(names.k, keys), v_ = project(names.v, keys);
    } else {
      qkv_ = project(names.qkv, queries + 2 * keys);
    }
    out_ = linear(*this, names.out, queries, width, config.out_bias, residual_init(config), config);
    const bool by_head = config.qk_norm == Config::QkNorm::heads;
    q_norm_ = norm(*this, names.q_norm, by_head ? depth : queries, config);
    k_norm_ = norm(*this, names.k_norm, by_head ? depth : keys, config);
    dropout_ = std::make_unique<nn::Dropout>(*this, "dropout", config.dropout);
  }

  Tensor operator()(const Tensor& x, const Positions& at) const {
    OriginScope scope(path());
    auto [q, k, v] = project(x);
    const DecoderLayer& layer = config_.layers[layer_];
    if (layer.rope >= 0) {
      const nn::Rotary& rotary = at.ropes[static_cast<size_t>(layer.rope)];
      q = rotate(q, rotary), k = rotate(k, rotary);
    }
    AttentionOptions options{.causal = true,
                             .mask = at.mask,
                             .window = layer.window,
                             .softcap = config_.attention_softcap,
                             .start = at.start};
    if (config_.attention_scale > 0) options.scale = config_.attention_scale;
    if (at.cache != nullptr) {
      k = update_cache(cached_keys(*at.cache, layer_), k, at.start);
      v = update_cache(cached_values(*at.cache, layer_), v, at.start);
    }
    if (config_.attention_dropout > 0 && current_mode() == Mode::train) {
      options.dropout = config_.attention_dropout;
      options.key = next_random_key();
    }
    const Tensor y = attention(q, k, v, options);
    return (*dropout_)((*out_)(flatten(permute(y, {0, 2, 1, 3}), 2)));
  }

 private:
  struct Projected {
    Tensor q, k, v;  // [B, heads, T, head_dim]
  };
  Projected project(const Tensor& x) const {
    const int64_t batch = x.dim(0), length = x.dim(1), depth = config_.head_dim;
    if (!qkv_) return {heads((*q_)(x), q_norm_), heads((*k_)(x), k_norm_), heads((*v_)(x), {})};
    const Tensor all = (*qkv_)(x);
    if (heads_ != key_heads_) {
      const int64_t keys = key_heads_ * depth;
      const std::vector<Tensor> parts = split(all, {heads_ * depth, keys, keys}, 2);
      return {heads(parts[0], q_norm_), heads(parts[1], k_norm_), heads(parts[2], {})};
    }
    std::vector<Tensor> parts =
        config_.qkv_by_head
            ? split(permute(reshape(all, {batch, length, heads_, 3, depth}), {3, 0, 2, 1, 4}), 1, 0)
            : split(permute(reshape(all, {batch, length, 3, heads_, depth}), {2, 0, 3, 1, 4}), 1,
                    0);
    for (Tensor& part : parts) part = squeeze(part, 0);
    return {parts[0], parts[1], parts[2]};
  }
  // Maps [B, T, heads * head_dim] to [B, heads, T, head_dim], normalized.
  Tensor heads(const Tensor& x, const std::unique_ptr<nn::Layer>& normalize) const {
    const bool by_head = config_.qk_norm == Config::QkNorm::heads;
    const Tensor all = by_head ? x : through(normalize, x);
    const Tensor each = reshape(all, {x.dim(0), x.dim(1), -1, config_.head_dim});
    return permute(by_head ? through(normalize, each) : each, {0, 2, 1, 3});
  }
  // Pairs are rotated as the two halves of a view, and stay where they are.
  Tensor rotate(const Tensor& x, const nn::Rotary& rotary) const {
    if (!config_.rope_in_pairs) return nn::rotate(x, rotary);
    const int64_t pairs = x.dim(3) / 2;
    const auto rearranged = [&](const Tensor& heads, int64_t rows, int64_t columns) {
      const Tensor each = reshape(heads, {x.dim(0), x.dim(1), x.dim(2), rows, columns});
      return flatten(permute(each, {0, 1, 2, 4, 3}), 3);
    };
    return rearranged(nn::rotate(rearranged(x, pairs, 2), rotary), 2, pairs);
  }
  // Appends new keys or values to the cached ones, and returns the cache's whole capacity.
  static Tensor update_cache(const Variable& cached, const Tensor& fresh, const Tensor& start) {
    const Tensor all = update_at(cached.value(), 2, start, fresh);
    cached.assign(all);
    return all;
  }

  const Config& config_;
  size_t layer_;
  int64_t heads_, key_heads_;
  std::unique_ptr<nn::Linear> qkv_, q_, k_, v_, out_;
  std::unique_ptr<nn::Layer> q_norm_, k_norm_, dropout_;
};

// DecoderMlp computes down(act(gate(x)) * up(x)), or down(act(up(x))) without a gate.
class DecoderMlp : public nn::Layer {
 public:
  DecoderMlp(nn::Module& parent, std::string name, const Config& config)
      : Layer(parent, std::move(name)),
        activation_(nn::activation_function(config.hidden_act, "decoder")) {
    const DecoderNames& names = config.names;
    const int64_t width = config.hidden_size, inner = config.intermediate_size;
    auto widen = [&](const std::string& to, int64_t out) {
      return linear(*this, to, width, out, config.mlp_bias, matrix_init(config), config);
    };
    if (names.gate_up.empty()) {
      gate_ = widen(names.gate, inner), up_ = widen(names.up, inner);
    } else {
      gate_up_ = widen(names.gate_up, 2 * inner);
    }
    down_ = linear(*this, names.down, inner, width, config.mlp_bias, residual_init(config), config);
    dropout_ = std::make_unique<nn::Dropout>(*this, "dropout", config.dropout);
  }

 protected:
  Tensor forward(const Tensor& x) const override { return (*dropout_)((*down_)(widened(x))); }

 private:
  Tensor widened(const Tensor& x) const {
    if (gate_up_) {
      const Tensor all = (*gate_up_)(x);
      const std::vector<Tensor> halves = split(all, all.dim(-1) / 2, -1);
      return activation_(halves[0]) * halves[1];
    }
    return gate_ ? activation_((*gate_)(x)) * (*up_)(x) : activation_((*up_)(x));
  }

  std::unique_ptr<nn::Linear> gate_up_, gate_, up_, down_;
  std::unique_ptr<nn::Layer> dropout_;
  nn::ActivationFunction activation_;
};

class DecoderBlock : public nn::Module {
 public:
  DecoderBlock(nn::Module& parent, std::string name, const Config& config, size_t layer)
      : Module(parent, std::move(name)), parallel_(config.parallel) {
    const DecoderNames& names = config.names;
    auto make_norm = [&](const std::string& of) {
      return norm(*this, of, config.hidden_size, config);
    };
    // Parameters are listed in the order of construction.
    if (config.norms_first) attention_norm_ = make_norm(names.attention_norm);
    attention_ = std::make_unique<Attention>(*this, names.attention, config, layer);
    if (config.norms_first) mlp_norm_ = make_norm(names.mlp_norm);
    mlp_ = make_mlp(config);
    if (!config.norms_first) attention_norm_ = make_norm(names.attention_norm);
    attention_post_norm_ = make_norm(names.attention_post_norm);
    if (!config.norms_first) mlp_norm_ = make_norm(names.mlp_norm);
    mlp_post_norm_ = make_norm(names.mlp_post_norm);
  }

  Tensor operator()(const Tensor& x, const Positions& at) const {
    OriginScope scope(path());
    const Tensor attended =
        through(attention_post_norm_, (*attention_)(through(attention_norm_, x), at));
    const Tensor y = x + attended;
    const Tensor widened = (*mlp_)(through(mlp_norm_, parallel_ ? x : y));
    return y + through(mlp_post_norm_, widened);
  }

 private:
  std::unique_ptr<nn::Layer> make_mlp(const Config& config) {
    if (config.num_experts == 0)
      return std::make_unique<DecoderMlp>(*this, config.names.mlp, config);
    return std::make_unique<nn::SparseMoe>(
        *this, config.names.mlp, config.hidden_size, config.intermediate_size,
        nn::SparseMoeOptions{.num_experts = config.num_experts,
                             .num_experts_per_tok = config.num_experts_per_tok,
                             .activation = config.hidden_act,
                             .init = matrix_init(config)});
  }

  bool parallel_;
  std::unique_ptr<Attention> attention_;
  std::unique_ptr<nn::Layer> mlp_, attention_norm_, attention_post_norm_, mlp_norm_, mlp_post_norm_;
};
}  // namespace

class DecoderStack : public nn::Module {
 public:
  DecoderStack(nn::Module& parent, const Config& config)
      : Module(parent, config.names.root),
        tokens(*this, config.names.tokens, config.vocab_size, config.hidden_size,
               {.init = matrix_init(config)}),
        config_(config) {
    if (!config.names.positions.empty()) {
      positions_ = std::make_unique<nn::Embedding>(
          *this, config.names.positions, config.max_position_embeddings, config.hidden_size,
          nn::EmbeddingOptions{.init = matrix_init(config)});
      WEFT_CHECK(positions_->blocks() == nullptr, "[decoder] learnt positions must be numbers.");
    }
    dropout_ = std::make_unique<nn::Dropout>(*this, "dropout", config.dropout);
    layers_ = std::make_unique<nn::ModuleList<DecoderBlock>>(*this, config.names.layers);
    for (size_t i = 0; i < config.layers.size(); ++i) layers_->add(config, i);
    norm_ = norm(*this, config.names.norm, config.hidden_size, config);
  }

  // Maps tokens to the states [B, T, hidden_size] after the last layer, before the final norm.
  Tensor operator()(const Tensor& ids, const Positions& at) const {
    OriginScope scope(path());
    Tensor x = tokens(ids);
    if (config_.embedding_scale != 1) x = x * config_.embedding_scale;
    if (positions_) x = x + learnt_positions(ids.dim(1), at);
    x = (*dropout_)(x);
    for (const DecoderBlock& block : *layers_) x = block(x, at);
    return x;
  }
  Tensor normalize(const Tensor& x) const { return (*norm_)(x); }

  nn::Embedding tokens;

 private:
  Tensor learnt_positions(int64_t length, const Positions& at) const {
    const Tensor all = positions_->weight.value();
    return at.places.defined() ? embedding(at.places, all) : slice(all, 0, 0, length);
  }

  const Config& config_;
  std::unique_ptr<nn::Embedding> positions_;
  std::unique_ptr<nn::Layer> dropout_, norm_;
  std::unique_ptr<nn::ModuleList<DecoderBlock>> layers_;
};

Decoder::Decoder(DecoderConfig config, nn::Options options)
    : Model(InputKind::tokens, std::move(options)),
      config_(std::move(config)),
      stack_(std::make_unique<DecoderStack>(*this, config_)) {
  if (!config_.tie_word_embeddings)
    head_ = std::make_unique<nn::Linear>(
        *this, config_.names.head, config_.hidden_size, config_.vocab_size,
        nn::LinearOptions{.bias = config_.head_bias, .init = matrix_init(config_)});
}
Decoder::~Decoder() = default;

const nn::Embedding& Decoder::embeddings() const { return stack_->tokens; }

Tensor Decoder::logits(const Tensor& hidden) const {
  const Tensor x = stack_->normalize(hidden);
  Tensor all = head_ ? (*head_)(x) : stack_->tokens.transposed_product(x);
  if (config_.logit_softcap == 0) return all;
  return config_.logit_softcap * tanh(all / config_.logit_softcap);
}

namespace {
int64_t rope_dimension(const Config& config) {
  return config.rope_dimension > 0 ? config.rope_dimension : config.head_dim;
}

// Returns the rotations at places[B, T] of tables [positions, half] and [positions, 2 half].
nn::Rotary rotary_at(const Tensor& places, const Tensor& cos, const Tensor& sin) {
  const int64_t batch = places.dim(0), length = places.dim(1), half = cos.dim(1);
  return {reshape(embedding(places, cos), {batch, 1, length, 1, half}),
          reshape(embedding(places, sin), {batch, 1, length, 2, half})};
}

// Returns the mask [B, 1, T, T] of rows with several samples: each query attends to the keys from
// the first token of its own sample on. Causal attention hides the later tokens.
Tensor own_sample(const Tensor& places) {
  const int64_t batch = places.dim(0), length = places.dim(1);
  const Tensor first = cast(arange(length) - places, DType::i32);
  return iota({batch, 1, length, length}, 3, DType::i32) >= reshape(first, {batch, 1, length, 1});
}
}  // namespace

Tensor Decoder::forward(const Tensor& tokens) const {
  const bool packed = tokens.rank() == 3 && tokens.dim(1) == 2;
  const int64_t length = tokens.rank() > 1 ? tokens.dim(-1) : 0;
  WEFT_CHECK((packed || tokens.rank() == 2) && length <= config_.max_position_embeddings,
             "[decoder] takes tokens [batch, length], or with positions [batch, 2, length], length "
             "at most {}. Got {}.",
             config_.max_position_embeddings, to_string(tokens.type()));
  Positions at;
  if (packed) {
    at.places = cast(squeeze(slice(tokens, 1, 1, 2), 1), DType::i64);
    at.mask = own_sample(at.places);
  }
  const DType dtype = stack_->tokens.dtype();
  for (const nn::RopeOptions& rope : config_.ropes) {
    const nn::Rotary all =
        nn::rotary(length, nn::rope_frequencies(rope, rope_dimension(config_), length), dtype);
    at.ropes.push_back(packed ? rotary_at(at.places, squeeze(all.cos, 1), flatten(all.sin, 1))
                              : all);
  }
  return logits((*stack_)(packed ? squeeze(slice(tokens, 1, 0, 1), 1) : tokens, at));
}

TokenCache Decoder::make_cache(int64_t batch, int64_t capacity) const {
  const DType dtype = stack_->tokens.dtype();
  TokenCache cache{.batch = batch, .capacity = capacity};
  auto add = [&](const std::string& name, const Shape& shape) {
    cache.variables.emplace_back(name, Type{dtype, shape}, Category::buffer_state);
  };
  const Shape shape{batch, config_.num_key_value_heads, capacity, config_.head_dim};
  for (size_t i = 0; i < config_.layers.size(); ++i) {
    add(fmt::format("cache.{}.keys", i), shape);
    add(fmt::format("cache.{}.values", i), shape);
  }
  const int64_t turned = rope_dimension(config_);
  for (size_t i = 0; i < config_.ropes.size(); ++i) {
    add(fmt::format("rope.{}.cos", i), {capacity, turned / 2});
    add(fmt::format("rope.{}.sin", i), {capacity, turned});
  }
  return cache;
}

void Decoder::begin(const TokenCache& cache, int64_t length) const {
  for (size_t i = 0; i < config_.ropes.size(); ++i) {
    const Variable &cos = cached_cos(cache, config_, i), &sin = cached_sin(cache, config_, i);
    const nn::RopeFrequencies frequencies = nn::rope_frequencies(
        config_.ropes[i], rope_dimension(config_), length > 0 ? length : cache.capacity);
    const nn::Rotary all = nn::rotary(cache.capacity, frequencies, cos.dtype());
    cos.assign(reshape(all.cos, cos.shape()));
    sin.assign(reshape(all.sin, sin.shape()));
  }
}

Tensor Decoder::continue_from(const TokenCache& cache, const Tensor& tokens, const Tensor& start,
                              const Tensor& last) const {
  const int64_t batch = cache.batch;
  WEFT_CHECK(tokens.rank() == 2 && tokens.dim(0) == batch && tokens.dim(1) <= cache.capacity,
             "[decoder] takes tokens [{}, length], length at most {}. Got {}.", batch,
             cache.capacity, to_string(tokens.type()));
  for (const Tensor& index : {start, last})
    WEFT_CHECK(is_integer(index.dtype()) && index.shape() == (Shape{batch}),
               "[decoder] takes integers [{}] as start and last. Got {}.", batch,
               to_string(index.type()));
  const int64_t length = tokens.dim(1);
  Positions at{.cache = &cache, .start = start, .places = unsqueeze(start, 1) + arange(length)};
  for (size_t i = 0; i < config_.ropes.size(); ++i)
    at.ropes.push_back(rotary_at(at.places, cached_cos(cache, config_, i).value(),
                                 cached_sin(cache, config_, i).value()));
  Tensor x = (*stack_)(tokens, at);
  if (length == 1) return logits(reshape(x, {batch, -1}));
  const Tensor rows = arange(batch) * length + cast(last, DType::i64);
  return logits(gather(flatten(x, 0, 1), rows, 0));
}

std::vector<io::NamedBytes> Decoder::saved() const {
  return config_.num_experts > 0 ? published_tensors(*this) : Model::saved();
}

const DecoderConfig* decoder_config_of(const Model& model) {
  const auto* decoder = dynamic_cast<const Decoder*>(&model);
  return decoder == nullptr ? nullptr : &decoder->decoder_config();
}

}  // namespace weft::models
