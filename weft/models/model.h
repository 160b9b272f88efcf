// Declares Model, which the program trains and serves, and the registry of models by name, which
// holds the zoo and a user's own.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weft/base/recipe/registry.h"
#include "weft/nn/factory.h"
#include "weft/nn/layer.h"
#include "weft/nn/options.h"

namespace weft::io {
struct NamedBytes;
}

namespace weft {

enum class InputKind { features, images, tokens };
std::string_view name(InputKind kind);

// TaskShape has the sizes of a task, which its data determine.
struct TaskShape {
  InputKind kind = InputKind::features;
  Shape input;          // one sample: [features], [channels, height, width] or [length]
  int64_t classes = 0;  // logits per sample, or per token (the vocabulary's size)
  // `vocabulary` is the number of token ids, for tokens whose sample has one label; 0: each token
  // has a label, one of `classes`.
  int64_t vocabulary = 0;
  // Rows hold several samples, which must not attend to each other: a batch is i64 [size, 2,
  // length], the tokens and the position of each in its sample.
  bool packed = false;
  int64_t padding = -1;  // the token that fills samples shorter than `input`; -1: none is shorter

  bool labels_tokens() const { return kind == InputKind::tokens && vocabulary == 0; }

  Type batch(int64_t size) const;  // the model's input: parameters' float type, or i64 tokens
};

// Returns the shape of one sample of a batch, for messages.
Shape of_sample(const Shape& batch);

// A TokenCache holds the state that a model keeps of the tokens of a batch of sequences, such as
// their keys and values. Steps update its variables in place.
struct TokenCache {
  int64_t batch = 0, capacity = 0;  // sequences, and most tokens of each
  std::vector<Variable> variables;
  int64_t bytes() const;
};

// Cached is the interface of models of tokens that continue sequences from a cache, instead of
// reading all their tokens again for each new token. Generation asks Model::cached() for it.
class Cached {
 public:
  virtual ~Cached() = default;
  // Makes an empty cache, which takes no memory until it is used: plans need its types alone.
  virtual TokenCache make_cache(int64_t batch, int64_t capacity) const = 0;
  // Prepares a cache before a step first reads it. `length` is the longest sequence that it will
  // hold; 0: the capacity.
  virtual void begin(const TokenCache& cache, int64_t length) const;
  // Appends tokens [B, T] to sequences whose first start[B] tokens are in the cache. Returns the
  // logits [B, vocabulary] after the token at index last[B] of each row. Later tokens of a row are
  // padding, which the next call overwrites.
  virtual Tensor continue_from(const TokenCache& cache, const Tensor& tokens, const Tensor& start,
                               const Tensor& last) const = 0;
};

// A Model maps inputs to logits [batch, classes], or [batch, length, classes] if each token has a
// label.
class Model : public nn::Layer {
 public:
  ~Model() override;
  InputKind input_kind() const { return input_kind_; }
  // Returns all options that make_model() needs to rebuild it, under the names of Hugging Face's
  // config.json; "model_type" is the name in the registry.
  const nn::Options& config() const { return config_; }
  // Returns the model's ability to continue sequences from a cache; null: it has none.
  virtual const Cached* cached() const { return nullptr; }
  // Returns whether the samples of a packed row (TaskShape::packed) do not attend to each other.
  virtual bool separates_samples() const { return false; }
  // Returns the tensors of the model's file of weights, as views of its memory.
  virtual std::vector<io::NamedBytes> saved() const;
  // Returns the weights whose numbers of output channels config_with() takes; empty if the config
  // has no such numbers.
  virtual std::vector<Variable> inner_weights() const { return {}; }
  // Returns the config of this model with channels[i] output channels of each inner weight i.
  virtual nn::Options config_with(std::span<const int64_t> channels) const;

 protected:
  Model(InputKind input_kind, nn::Options config);

 private:
  InputKind input_kind_;
  nn::Options config_;
};

struct ModelEntry {
  std::string name, doc;
  // `config` holds the options that the user set; the others follow from the task and the defaults.
  // Throws Error(usage) naming the option and its limit.
  std::function<std::unique_ptr<Model>(const nn::Options& config, const TaskShape& task)> make;
};
namespace registry {
Registry<ModelEntry>& models();
}
std::unique_ptr<Model> make_model(std::string_view name, const nn::Options& config,
                                  const TaskShape& task);

// Makes the model of a recipe's `layers:`, which must end in logits of the task's classes.
std::unique_ptr<Model> make_layers_model(std::span<const nn::LayerSpec> layers,
                                         const TaskShape& task);

}  // namespace weft
