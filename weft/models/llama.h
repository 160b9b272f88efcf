// Declares Llama (Touvron et al. 2023, "LLaMA: Open and efficient foundation language models"):
// pre-norm with RMSNorm, rotary positions, SwiGLU, grouped-query attention (Ainslie et al. 2023).
// Parameters have Hugging Face's names.
#pragma once

#include "weft/models/decoder.h"

namespace weft::models {

struct LlamaConfig {
  int64_t vocab_size = 32000;
  int64_t max_position_embeddings = 2048;
  int64_t hidden_size = 2048;
  int64_t intermediate_size = 5632;
  int64_t num_hidden_layers = 16;
  int64_t num_attention_heads = 32;
  int64_t num_key_value_heads = 0;  // 0: as many as query heads
  int64_t head_dim = 0;             // 0: hidden_size / num_attention_heads
  std::string hidden_act = "silu";
  double rope_theta = 10000;
  double rms_norm_eps = 1e-6;
  bool tie_word_embeddings = false;
  double initializer_range = 0.02;

  static LlamaConfig read(const nn::Options& config, const TaskShape& task);
  nn::Options options() const;
  DecoderConfig decoder() const;
};

class Llama : public Decoder {
 public:
  explicit Llama(const LlamaConfig& config);
};

}  // namespace weft::models
