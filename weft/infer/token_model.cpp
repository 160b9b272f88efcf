#include "weft/infer/token_model.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "weft/base/error.h"
#include "weft/base/memory/buffer.h"
#include "weft/nn/block_activations.h"
#include "weft/tensor/compile.h"

namespace weft::infer {
namespace {
// Prompts are read in pieces of these lengths in tokens. Each length has a plan of its own. Beyond
// 16 tokens the next larger piece wastes less than half of its work.
constexpr std::array<int64_t, 7> pieces = {1, 16, 32, 64, 128, 256, 512};

int64_t piece_for(int64_t tokens, int64_t context) {
  for (int64_t piece : pieces)
    if (piece >= tokens) return std::min(piece, context);
  return std::min(pieces.back(), context);
}

int64_t bytes_of(const std::vector<Variable>& variables) {
  int64_t sum = 0;
  for (const Variable& variable : variables) sum += static_cast<int64_t>(variable.type().bytes());
  return sum;
}

CompiledStep make_step(CompiledStep::Function function, const TokenModelOptions& options) {
  // A prompt's step mostly runs once, and packing all weights for it takes longer than it saves.
  CompiledStep step(std::move(function),
                    {.mode = Mode::eval, .device = options.device, .pack_weights = false});
  if (!options.workspace.empty()) step.use_workspace(options.workspace);
  return step;
}

// Copies logits, which steps return as float32.
void copy_row(const Tensor& all, int64_t from, std::span<float> to) {
  const std::byte* row = all->data() + static_cast<size_t>(from) * to.size_bytes();
  std::memcpy(to.data(), row, to.size_bytes());
}

// CapturedSteps are captured from a model and compiled, for each length when it is first used.
class CapturedSteps : public TokenSteps {
 public:
  CapturedSteps(const Model& model, const Cached& cached, int64_t context,
                const TokenModelOptions& options)
      : model_(model),
        cached_(cached),
        cache_(cached.make_cache(options.batch, context)),
        length_(options.length),
        activations_(nn::BlockActivations::choose(model, options.device, options.activations)),
        step_(make_step(
            [this](std::span<const Tensor> in) -> std::vector<Tensor> {
              const nn::BlockActivations scope(activations_);
              return {cast(cached_.continue_from(cache_, in[0], in[1], in[2]), DType::f32)};
            },
            options)) {}

  void begin() override { cached_.begin(cache_, length_); }
  Tensor run(const Tensor& tokens, const Tensor& start, const Tensor& last) override {
    return step_.run(std::array{tokens, start, last})[0];
  }
  Executable& step(int64_t length) override { return step_.prepare(types_for(length)); }
  TokenModelPlan plan(int64_t prefill_length) override {
    TokenModelPlan plan;
    plan.weight_bytes = bytes_of(model_.variables());
    plan.cache_bytes = cache_.bytes();
    plan.activations = activations_;
    plan.prefill_tokens = prefill_length;
    plan.prefill = step_.plan(types_for(prefill_length));
    plan.decode = step_.plan(types_for(1));
    return plan;
  }

 private:
  std::array<Type, 3> types_for(int64_t length) const {
    const Type index{DType::i64, {cache_.batch}};
    return {Type{DType::i64, {cache_.batch, length}}, index, index};
  }

  const Model& model_;
  const Cached& cached_;
  TokenCache cache_;
  int64_t length_;
  DType activations_;
  CompiledStep step_;
};

// CachedModel computes each token once, as the cache holds the keys and values that later tokens
// read.
class CachedModel : public TokenModel {
 public:
  CachedModel(std::unique_ptr<TokenSteps> steps, int64_t batch, int64_t context, int64_t vocabulary)
      : TokenModel(batch, context, vocabulary), steps_(std::move(steps)) {}

  TokenModelPlan plan(int64_t prefill_tokens) override {
    return steps_->plan(piece_for(prefill_tokens, context_));
  }
  Executable& step(int64_t tokens) override { return steps_->step(piece_for(tokens, context_)); }
  std::vector<int64_t> lengths() const override { return piece_lengths(context_); }
  void begin() override {
    if (!std::exchange(has_begun_, true)) steps_->begin();
  }

 protected:
  void run(std::span<const RowTokens> rows) override {
    begin();
    int64_t left = 0;
    for (const RowTokens& row : rows) left = std::max<int64_t>(left, std::ssize(row.tokens));
    for (int64_t done = 0; left > 0;) {
      const int64_t piece = piece_for(left, context_);
      run_piece(rows, done, piece);
      done += piece, left -= piece;
    }
  }

 private:
  // Reads the tokens from `done` on. A row that has none left reads padding, which its next tokens
  // overwrite.
  void run_piece(std::span<const RowTokens> rows, int64_t done, int64_t piece) {
    std::vector<int64_t> tokens(static_cast<size_t>(batch_ * piece)), start, last;
    for (int64_t b = 0; b < batch_; ++b) {
      const RowTokens& row = rows[static_cast<size_t>(b)];
      const int64_t given = std::ssize(row.tokens), from = std::min(done, given);
      const int64_t count = std::min(given - from, piece);
      std::copy_n(row.tokens.begin() + from, count, tokens.begin() + b * piece);
      start.push_back(std::ssize(histories_[static_cast<size_t>(b)]) - given + from);
      last.push_back(std::max<int64_t>(count - 1, 0));
    }
    const Tensor all = steps_->run(tensor(tokens, {batch_, piece}), tensor(start, {batch_}),
                                   tensor(last, {batch_}));
    eval(std::span(&all, 1));
    for (int64_t b = 0; b < batch_; ++b) {
      const int64_t given = std::ssize(rows[static_cast<size_t>(b)].tokens);
      const bool is_last_here = given > done && given <= done + piece;
      const std::span<float> to(logits_.data() + b * vocabulary(),
                                static_cast<size_t>(vocabulary()));
      if (is_last_here) copy_row(all, b, to);
    }
  }

  std::unique_ptr<TokenSteps> steps_;
  bool has_begun_ = false;
};

// WindowModel computes the last tokens again for each token, always in the shape [batch, context].
// Tokens after the last one of a sequence are padding that causal models do not see.
class WindowModel : public TokenModel {
 public:
  WindowModel(const Model& model, int64_t context, int64_t vocabulary,
              const TokenModelOptions& options)
      : TokenModel(options.batch, context, vocabulary),
        model_(model),
        step_(make_step(
            [this](std::span<const Tensor> in) -> std::vector<Tensor> {
              const Tensor all = model_(in[0]);  // [batch, context, vocabulary]
              const Tensor rows = arange(batch_) * context_ + in[1];
              return {cast(gather(flatten(all, 0, 1), rows, 0), DType::f32)};
            },
            options)) {}

  TokenModelPlan plan(int64_t) override {
    TokenModelPlan plan;
    plan.weight_bytes = bytes_of(model_.variables());
    plan.prefill_tokens = context_;
    plan.prefill = plan.decode = step_.plan(types());
    return plan;
  }
  Executable& step(int64_t) override { return step_.prepare(types()); }
  std::vector<int64_t> lengths() const override { return {context_}; }

 protected:
  void run(std::span<const RowTokens>) override {
    std::vector<int64_t> tokens(static_cast<size_t>(batch_ * context_)), last;
    for (int64_t b = 0; b < batch_; ++b) {
      const std::vector<int32_t>& history = histories_[static_cast<size_t>(b)];
      std::ranges::copy(history, tokens.begin() + b * context_);
      last.push_back(std::max<int64_t>(std::ssize(history) - 1, 0));
    }
    const Tensor all =
        step_.run(std::array{tensor(tokens, {batch_, context_}), tensor(last, {batch_})})[0];
    eval(std::span(&all, 1));
    for (int64_t b = 0; b < batch_; ++b)
      copy_row(all, b,
               std::span(logits_).subspan(static_cast<size_t>(b * vocabulary_),
                                          static_cast<size_t>(vocabulary_)));
  }

 private:
  std::array<Type, 2> types() const {
    return {Type{DType::i64, {batch_, context_}}, Type{DType::i64, {batch_}}};
  }

  const Model& model_;
  CompiledStep step_;
};
}  // namespace

TokenModel::TokenModel(int64_t batch, int64_t context, int64_t vocabulary)
    : batch_(batch), context_(context), vocabulary_(vocabulary) {
  WEFT_ASSERT(batch > 0 && context > 0, "no sequence, or no room");
}

void TokenModel::append(std::span<const RowTokens> rows) {
  WEFT_ASSERT(std::ssize(rows) == batch_, "rows of another batch");
  histories_.resize(rows.size());
  logits_.resize(static_cast<size_t>(batch_ * vocabulary()));
  for (size_t b = 0; b < rows.size(); ++b) {
    const int64_t wanted =
        std::min(rows[b].prefix, std::ssize(histories_[b])) + std::ssize(rows[b].tokens);
    if (wanted > context_)
      throw Error(ErrorKind::usage, "a sequence of {} tokens exceeds the context of {}.", wanted,
                  context_);
  }
  for (size_t b = 0; b < rows.size(); ++b) {
    std::vector<int32_t>& history = histories_[b];
    if (rows[b].prefix < std::ssize(history)) history.resize(static_cast<size_t>(rows[b].prefix));
    history.insert(history.end(), rows[b].tokens.begin(), rows[b].tokens.end());
  }
  run(rows);
}

std::span<const float> TokenModel::logits(int64_t row) const {
  return std::span(logits_).subspan(static_cast<size_t>(row * vocabulary()),
                                    static_cast<size_t>(vocabulary()));
}

std::unique_ptr<TokenModel> make_token_model(const Model& model, int64_t vocabulary,
                                             int64_t most_tokens,
                                             const TokenModelOptions& options) {
  const int64_t context = options.context > 0 ? options.context : most_tokens;
  if (context > most_tokens)
    throw Error(ErrorKind::usage, "the context is at most {} tokens, as the model says. Got {}.",
                most_tokens, context);
  if (const Cached* cached = model.cached())
    return make_token_model(std::make_unique<CapturedSteps>(model, *cached, context, options),
                            options.batch, context, vocabulary);
  return std::make_unique<WindowModel>(model, context, vocabulary, options);
}

std::vector<int64_t> piece_lengths(int64_t context) {
  std::vector<int64_t> all;
  for (const int64_t piece : pieces)
    if (const int64_t length = std::min(piece, context); all.empty() || length > all.back())
      all.push_back(length);
  return all;
}

std::unique_ptr<TokenModel> make_token_model(std::unique_ptr<TokenSteps> steps, int64_t batch,
                                             int64_t context, int64_t vocabulary) {
  return std::make_unique<CachedModel>(std::move(steps), batch, context, vocabulary);
}

}  // namespace weft::infer
