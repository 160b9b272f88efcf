// Declares the transformer encoder of BERT (Devlin et al. 2019, "BERT: Pre-training of deep
// bidirectional transformers"), RoBERTa (Liu et al. 2019) and DistilBERT (Sanh et al. 2019):
// post-norm, learnt positions, no causal mask, with a head that predicts masked tokens, a label of
// each token, or a label of the sample. Equations and names of parameters are as in Hugging Face's
// transformers; weft/models/families reads its configurations.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "weft/models/model.h"
#include "weft/nn/layers.h"

namespace weft::models {

enum class EncoderHead { masked_tokens, token_labels, sample_label };

// EncoderLabels are the labels that a head of tokens or samples tells apart: id2label of a
// config.json.
struct EncoderLabels {
  EncoderHead head = EncoderHead::sample_label;
  std::vector<std::string> names = {};  // by class, at least two
  friend bool operator==(const EncoderLabels&, const EncoderLabels&) = default;
};

// EncoderNames are the published names of an encoder's modules; the defaults are BERT's. A name may
// have dots. The names in a layer are relative to the layer, the names in the head to `head`.
struct EncoderNames {
  std::string encoder = "bert";
  std::string layers = "encoder.layer";
  std::string query = "attention.self.query", key = "attention.self.key";
  std::string value = "attention.self.value";
  std::string attention_output = "attention.output.dense";
  std::string attention_norm = "attention.output.LayerNorm";
  std::string intermediate = "intermediate.dense", output = "output.dense";
  std::string output_norm = "output.LayerNorm";
  std::string head = {};
  std::string head_dense = {};   // hidden layer of the heads for masked tokens and samples
  std::string head_norm = {};    // norm after it, masked tokens only
  std::string head_output = {};  // classifier, or the bias of the tied decoder
};

struct EncoderConfig {
  std::string model_type = "bert";  // for errors
  EncoderNames names = {};
  EncoderHead head = EncoderHead::masked_tokens;
  int64_t vocab_size = 30522;
  int64_t num_labels = 2;  // label classes of a token or a sample
  int64_t max_position_embeddings = 512;
  int64_t type_vocab_size = 2;               // kinds of segments; 0: the net has none
  std::optional<int64_t> pad_token_id = {};  // its embedding gets no gradient as an input
  bool positions_after_pad = false;          // RoBERTa's positions, see encoder.cpp
  int64_t hidden_size = 768;
  int64_t num_hidden_layers = 12;
  int64_t num_attention_heads = 12;  // divides hidden_size
  int64_t intermediate_size = 3072;
  std::string hidden_act = "gelu";
  std::string head_act = "gelu";        // activation of the head's hidden layer
  double hidden_dropout = 0.1;          // rate for embeddings and feed-forward results
  double attention_dropout = 0.1;       // rate for the attention weights
  double projection_dropout = 0.1;      // rate for the attention's results; 0 in DistilBERT
  double classifier_dropout = 0.1;      // before the classifier
  bool dropout_of_first_token = false;  // RoBERTa: also before the hidden layer of a sample's head
  double layer_norm_eps = 1e-12;
  double initializer_range = 0.02;
};

// EncoderInputs are the inputs [B, T] of an encoder besides its tokens [B, T], under Hugging Face's
// names.
struct EncoderInputs {
  Tensor attention_mask = {};  // bool or integers; 0: a token that no query attends to
  Tensor token_type_ids = {};  // integers in [0, type_vocab_size); empty: all 0
};

class EncoderStack;  // embeddings and layers: [B, T] -> [B, T, hidden_size]

class Encoder : public Model {
 public:
  // config() returns `published`.
  Encoder(const EncoderConfig& config, nn::Options published);
  ~Encoder() override;
  // Maps integers [B, T] to [B, T, vocab_size], [B, T, num_labels] or [B, num_labels], by the head.
  // Throws Error(usage) for a length or inputs that do not fit.
  Tensor operator()(const Arg& tokens, const EncoderInputs& inputs) const;
  using Layer::operator();
  // Returns the most tokens of a sequence, which may be fewer than the rows of the position table:
  // RoBERTa's positions begin after the padding token's.
  int64_t context() const;

  const EncoderConfig& encoder_config() const { return config_; }
  // Masks tokens that are `pad_token_id` in later calls, unless a mask is given: samples of a run
  // are tokens alone.
  void hide_padding() { hides_padding_ = true; }

 protected:
  Tensor forward(const Tensor& tokens) const override { return run(tokens, {}); }

 private:
  Tensor run(const Tensor& tokens, const EncoderInputs& inputs) const;

  EncoderConfig config_;
  bool hides_padding_ = false;
  std::unique_ptr<EncoderStack> encoder_;
  std::unique_ptr<nn::Layer> head_;  // maps [B, T, hidden_size] to the result
};

}  // namespace weft::models
