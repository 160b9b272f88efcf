// A TokenModel continues a batch of sequences of tokens: it appends tokens to each sequence, and
// returns the logits of the next token.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "weft/models/model.h"
#include "weft/tensor/compile.h"

namespace weft::infer {

struct TokenModelOptions {
  int64_t batch = 1;    // sequences
  int64_t context = 0;  // most tokens of each; 0: as many as the model takes
  // `length` is the length that sequences are meant to reach, on which some scalings of rotary
  // positions depend; 0: the context.
  int64_t length = 0;
  std::string device = "auto";
  // `activations` is the type of activations in products with weights in blocks: i8 rounds them,
  // f32 does not. Where it is absent, nn::BlockActivations::choose() chooses it.
  std::optional<DType> activations = {};
  // `workspace` is the caller's memory for the arena of all steps, see CompiledStep::use_workspace;
  // empty: it is allocated. TokenModelPlan::arena_bytes() says how many bytes it needs. Models that
  // run one after the other may share it. Weights and cache have memory of their own.
  std::span<std::byte> workspace = {};
};

// TokenModelPlan holds the memory and the time of the steps, planned without running them.
struct TokenModelPlan {
  int64_t weight_bytes = 0, cache_bytes = 0;
  DType activations = DType::f32;  // in products with weights in blocks, if the model has any
  PlanSummary prefill, decode;     // steps with prefill_tokens for each sequence, and with one
  int64_t prefill_tokens = 0;
  // The steps share their arena.
  size_t arena_bytes() const { return std::max(prefill.arena_bytes, decode.arena_bytes); }
};

// RowTokens are the new tokens of one sequence, possibly none.
struct RowTokens {
  std::span<const int32_t> tokens = {};
  int64_t prefix = std::numeric_limits<int64_t>::max();  // first tokens of the sequence that stay
};

// TokenSteps are the steps that continue sequences from a cache, for TokenModel. A step reads
// tokens [batch, length], i64, of sequences whose first start[batch] tokens are in the cache, and
// returns the logits [batch, vocabulary], f32, after the token at index last[batch] of each row.
class TokenSteps {
 public:
  virtual ~TokenSteps() = default;
  // Prepares the cache, before a step first reads it.
  virtual void begin() = 0;
  virtual Tensor run(const Tensor& tokens, const Tensor& start, const Tensor& last) = 0;
  // Returns the compiled step that reads this many tokens of each sequence.
  virtual Executable& step(int64_t length) = 0;
  virtual TokenModelPlan plan(int64_t prefill_length) = 0;
};

class TokenModel {
 public:
  virtual ~TokenModel() = default;
  TokenModel(const TokenModel&) = delete;
  TokenModel& operator=(const TokenModel&) = delete;

  int64_t batch() const { return batch_; }
  int64_t context() const { return context_; }
  // Returns the tokens that a sequence has.
  std::span<const int32_t> history(int64_t row) const {
    if (histories_.empty()) return {};
    return histories_[static_cast<size_t>(row)];
  }
  int64_t vocabulary() const { return vocabulary_; }
  // Continues each sequence. Throws Error(usage) for a sequence that exceeds the context. A row
  // without new tokens keeps its logits.
  void append(std::span<const RowTokens> rows);
  // Returns the logits [vocabulary()] of the next token of a sequence, until append().
  std::span<const float> logits(int64_t row) const;
  virtual TokenModelPlan plan(int64_t prefill_tokens) = 0;
  // Returns the compiled step that append() runs for this many new tokens of each sequence (of more
  // than 512: for the first of them), for callers that time its kernels.
  virtual Executable& step(int64_t tokens) = 0;
  // Returns the lengths in tokens of all steps that append() may run.
  virtual std::vector<int64_t> lengths() const = 0;
  // Prepares the state that steps read, as the first append() does.
  virtual void begin() {}

 protected:
  TokenModel(int64_t batch, int64_t context, int64_t vocabulary);
  // Computes the logits of rows with new tokens, which histories_ end with.
  virtual void run(std::span<const RowTokens> rows) = 0;

  int64_t batch_, context_, vocabulary_;
  // Planning allocates neither: the first append() does.
  std::vector<std::vector<int32_t>> histories_;
  std::vector<float> logits_;  // [batch, vocabulary]
};

// Makes the token model of a language model with this many ids, which takes at most `most_tokens`
// at once: from a cache where the model is Cached, as decoders are, else (recurrent nets) by
// computing all tokens of the context again for each. The model must outlive it.
std::unique_ptr<TokenModel> make_token_model(const Model& model, int64_t vocabulary,
                                             int64_t most_tokens, const TokenModelOptions& options);
// Returns the lengths in tokens of the steps of sequences in a cache, by the most tokens of each.
std::vector<int64_t> piece_lengths(int64_t context);
// Makes a token model that runs `steps`, of all its lengths().
std::unique_ptr<TokenModel> make_token_model(std::unique_ptr<TokenSteps> steps, int64_t batch,
                                             int64_t context, int64_t vocabulary);

}  // namespace weft::infer
