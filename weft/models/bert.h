// BERT: Devlin et al. 2019, "BERT: Pre-training of deep bidirectional transformers". Norms behind
// each part, learnt positions, no causality; Hugging Face's names and equations. Its head predicts
// masked tokens, or, where tokens have one label together, that label from the first of them.
#pragma once

#include "weft/models/model.h"
#include "weft/nn/layers.h"

namespace weft::models {

struct BertConfig {
  int64_t vocab_size = 30522;
  int64_t num_labels = 0;  // of a whole sample; 0: a token is predicted at each place
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

// What BERT reads beside tokens [B, T], under Hugging Face's names and each of their shape.
struct BertInputs {
  Tensor attention_mask = {};  // bool or integers; 0: a token that nobody looks at
  Tensor token_type_ids = {};  // integers in [0, type_vocab_size); empty: all 0
};

class BertEncoder;  // embeddings and layers: [B, T] -> [B, T, hidden_size]
class BertHead;

class Bert : public Model {
 public:
  explicit Bert(const BertConfig& config);
  ~Bert() override;
  // integers [B, T] -> [B, T, vocab_size], or [B, num_labels]
  Tensor operator()(const Arg& tokens, const BertInputs& inputs) const;
  using Layer::operator();

 protected:
  Tensor forward(const Tensor& tokens) const override { return run(tokens, {}); }

 private:
  Tensor run(const Tensor& tokens, const BertInputs& inputs) const;

  std::unique_ptr<BertEncoder> bert_;
  std::unique_ptr<BertHead> cls_;           // of masked tokens, or
  std::unique_ptr<nn::Linear> classifier_;  // of samples
  nn::Dropout dropout_;
};

}  // namespace weft::models
