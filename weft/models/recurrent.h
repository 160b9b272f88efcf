// Declares recurrent language models: Zaremba et al. 2014, "Recurrent neural network
// regularization". Dropout applies between layers, never between time steps.
#pragma once

#include "weft/models/model.h"
#include "weft/nn/layers.h"

namespace weft::models {

struct RecurrentConfig {
  std::string cell = "lstm";  // or "gru"
  int64_t vocab_size = 10000;
  int64_t hidden_size = 512;
  int64_t embedding_size = 0;  // 0: hidden_size
  int64_t num_hidden_layers = 2;
  double dropout = 0;  // dropout rate behind the embedding, between layers, before the head
  double initializer_range = 0.1;  // embedding and head: uniform

  static RecurrentConfig read(const nn::Options& config, const TaskShape& task);
  nn::Options options() const;
};

// RecurrentLm consists of encoder, rnn and decoder, as in PyTorch's example of a language model.
class RecurrentLm : public Model {
 public:
  explicit RecurrentLm(const RecurrentConfig& config);

 protected:
  Tensor forward(const Tensor& tokens) const override;  // integers [B, T] -> [B, T, vocab_size]

 private:
  nn::Embedding encoder_;
  std::unique_ptr<nn::Recurrent> rnn_;
  nn::Linear decoder_;
  nn::Dropout dropout_;
};

}  // namespace weft::models
