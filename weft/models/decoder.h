// Declares the decoder-only transformer in all forms of its published families: each layer adds
// attention and a perceptron to the residual stream, with norms before, after or around them. A
// DecoderConfig describes a family: its equations, and the names of its parameters.
//
// A decoder computes whole sequences, or continues sequences whose keys and values are in a cache:
// the same weights and operations in another plan.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "weft/models/model.h"
#include "weft/nn/rope.h"

namespace weft::nn {
class Embedding;
}

namespace weft::models {

// DecoderNames are the names of modules, as the family publishes them. A decoder has no module
// whose name is "".
struct DecoderNames {
  std::string root = "model";
  std::string tokens = "embed_tokens", positions = {};  // embeddings; learnt positions
  std::string layers = "layers", norm = "norm", head = "lm_head";
  std::string attention = "self_attn";
  std::string qkv = {};  // one product for q, k and v; else three:
  std::string q = "q_proj", k = "k_proj", v = "v_proj", out = "o_proj";
  std::string q_norm = {}, k_norm = {};
  std::string mlp = "mlp";   // or the mixture of experts, with the parts of nn::SparseMoe
  std::string gate_up = {};  // one product for gate and up; else two, or up alone:
  std::string gate = "gate_proj", up = "up_proj", down = "down_proj";
  // These are norms of the inputs of attention and perceptron, and (post) of their outputs.
  std::string attention_norm = "input_layernorm", attention_post_norm = {};
  std::string mlp_norm = "post_attention_layernorm", mlp_post_norm = {};
};

// DecoderLayer has the settings of attention that differ between layers.
struct DecoderLayer {
  int64_t window = 0;  // sliding window; 0: attends to all tokens before
  int rope = 0;        // index into DecoderConfig::ropes; -1: no rotary positions
};

struct DecoderConfig {
  int64_t vocab_size = 32000;
  int64_t max_position_embeddings = 2048;
  int64_t hidden_size = 2048;
  int64_t intermediate_size = 5632;
  int64_t num_attention_heads = 32;
  int64_t num_key_value_heads = 32;  // divides num_attention_heads
  int64_t head_dim = 64;
  std::vector<DecoderLayer> layers = {};

  enum class Norm : uint8_t { layer, rms, rms_plus_one } norm = Norm::rms;
  double norm_eps = 1e-6;
  bool norm_bias = true;  // layer norms have biases
  // q_norm and k_norm normalize each head, or all heads together.
  enum class QkNorm : uint8_t { heads, all } qk_norm = QkNorm::heads;

  bool qkv_bias = false, out_bias = false, mlp_bias = false, head_bias = false;
  // The rows of a qkv weight are all rows of q, then of k, then of v; or, if set, the rows of q, k
  // and v for each head in turn (GPT-NeoX).
  bool qkv_by_head = false;
  bool transposed = false;  // weights of layers are [in, out]
  // Rows of q and k of a head are in neighbouring pairs that turn together (llama.cpp's Llama).
  bool rope_in_pairs = false;
  bool norms_first = false;  // a layer's norms are listed before the modules that read them
  bool parallel = false;  // attention and perceptron read and add to the same residual (GPT-NeoX)
  bool tie_word_embeddings = false;

  // These count the experts (nn/moe.h) that a layer has instead of a perceptron, and the experts
  // that each token takes; 0: no experts.
  int64_t num_experts = 0, num_experts_per_tok = 0;

  std::string hidden_act = "silu";
  double embedding_scale = 1;
  double attention_scale = 0;                       // factor of the scores; 0: 1 / sqrt(head_dim)
  double attention_softcap = 0, logit_softcap = 0;  // 0: none
  std::vector<nn::RopeOptions> ropes = {};
  int64_t rope_dimension = 0;  // rotated elements of each head; 0: all

  double dropout = 0;            // rate for embeddings and for additions to the residual stream
  double attention_dropout = 0;  // rate for the weights; above 0 no kernel fuses their training
  double initializer_range = 0.02;
  bool scaled_residual_init = false;  // projections that add: divided by sqrt(2 layers)

  DecoderNames names = {};
  // `unapplied` describes regularization that the authors trained with and weft does not implement,
  // for users who train the model.
  std::vector<std::string> unapplied = {};
};

class DecoderStack;  // everything but the head

class Decoder : public Model, public Cached {
 public:
  // config() returns `options`.
  Decoder(DecoderConfig config, nn::Options options);
  ~Decoder() override;

  const DecoderConfig& decoder_config() const { return config_; }
  const nn::Embedding& embeddings() const;  // embeddings of tokens; a tied head reads its weight
  const Cached* cached() const override { return this; }
  // The cache holds keys and values [batch, key heads, capacity, head_dim] of each layer, and the
  // cosines and sines of `capacity` rotary positions.
  TokenCache make_cache(int64_t batch, int64_t capacity) const override;
  // Writes the rotary positions; the length chooses the frequencies of rope scalings that depend on
  // it.
  void begin(const TokenCache& cache, int64_t length) const override;
  Tensor continue_from(const TokenCache& cache, const Tensor& tokens, const Tensor& start,
                       const Tensor& last) const override;
  bool separates_samples() const override { return true; }
  std::vector<io::NamedBytes> saved() const override;

 protected:
  // Maps integers [B, T] to [B, T, vocab_size]; or [B, 2, T] whose rows hold several samples:
  // tokens, and the position of each in its sample, beyond which it attends to nothing.
  Tensor forward(const Tensor& tokens) const override;

 private:
  Tensor logits(const Tensor& hidden) const;

  DecoderConfig config_;
  std::unique_ptr<DecoderStack> stack_;
  std::unique_ptr<nn::Layer> head_;  // null: the embedding's weight
};

// Returns the description of a model that is a decoder; null for others.
const DecoderConfig* decoder_config_of(const Model& model);

}  // namespace weft::models
