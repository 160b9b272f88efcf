// Declares the decoder-only transformer of Radford et al. 2019, "Language models are unsupervised
// multitask learners" (GPT-2), which has pre-norm, learnt positions, and a head tied to the token
// embedding.
#pragma once

#include "weft/io/load.h"
#include "weft/models/decoder.h"

namespace weft::models {

struct GptConfig {
  int64_t vocab_size = 50257;
  int64_t max_position_embeddings = 1024;
  int64_t hidden_size = 768;
  int64_t num_hidden_layers = 12;
  int64_t num_attention_heads = 12;
  int64_t intermediate_size = 0;  // 0: 4 * hidden_size
  bool bias = true;               // linear layers and norms have biases
  std::string hidden_act = "gelu_new";
  double dropout = 0;  // rate for embeddings and for additions to the residual stream
  double layer_norm_eps = 1e-5;
  double initializer_range = 0.02;  // residual projections: divided by sqrt(2 layers)

  static GptConfig read(const nn::Options& config, const TaskShape& task);
  nn::Options options() const;
  DecoderConfig decoder() const;
};

// Returns how io::load() reads the published files of GPT-2 into a model "gpt2": names lose their
// "mlp", which is no module here; matrices are [in, out] (Hugging Face's Conv1D); attention masks
// and the head, which is the embedding, are ignored. Files that put "transformer." before all names
// need it as `prefix`.
io::LoadOptions gpt2_layout();

class Gpt : public Decoder {
 public:
  explicit Gpt(const GptConfig& config);
};

}  // namespace weft::models
