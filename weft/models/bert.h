// BERT: Devlin et al. 2019, "BERT: Pre-training of deep bidirectional transformers". Post-norm,
// learnt positions, no causal mask; Hugging Face's names and equations. Its head predicts masked
// tokens, or the label of a whole sample from its first token.
#pragma once

#include "weft/models/model.h"
#include "weft/nn/layers.h"

namespace weft::models {

struct BertConfig {
  int64_t vocab_size = 30522;
  int64_t num_labels = 0;  // of a whole sample; 0: a token is predicted at each position
  int64_t max_position_embeddings = 512;
  int64_t type_vocab_size = 2;  // kinds of segments
  int64_t hidden_size = 768;
  int64_t num_hidden_layers = 12;
  int64_t num_attention_heads = 12;
  int64_t intermediate_size = 3072;
  std::string hidden_act = "gelu";
  double hidden_dropout_prob = 0.1;
  double layer_norm_eps = 1e-12;
  double initializer_range = 0.02;

  static BertConfig read(const nn::Options& config, const TaskShape& task);
  nn::Options options() const;
};

// BertInputs is what BERT reads besides tokens [B, T], under Hugging Face's names, also [B, T].
struct BertInputs {
  Tensor attention_mask = {};  // bool or integers; 0: a token that no query attends to
  Tensor token_type_ids = {};  // integers in [0, type_vocab_size); empty: all 0
};

class BertEncoder;  // embeddings and layers: [B, T] -> [B, T, hidden_size]
class BertHead;

class Bert : public Model {
 public:
  explicit Bert(const BertConfig& config);
  ~Bert() override;
  // Maps integers [B, T] to [B, T, vocab_size], or to [B, num_labels].
  Tensor operator()(const Arg& tokens, const BertInputs& inputs) const;
  using Layer::operator();

 protected:
  Tensor forward(const Tensor& tokens) const override { return run(tokens, {}); }

 private:
  Tensor run(const Tensor& tokens, const BertInputs& inputs) const;

  std::unique_ptr<BertEncoder> bert_;
  std::unique_ptr<BertHead> cls_;           // null with num_labels
  std::unique_ptr<nn::Linear> classifier_;  // null without num_labels
  nn::Dropout dropout_;
};

}  // namespace weft::models
