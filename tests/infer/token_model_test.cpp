#include "weft/infer/token_model.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "tests/io/helpers.h"
#include "tests/support/allocations.h"
#include "tests/support/near.h"
#include "weft/base/memory/buffer_source.h"
#include "weft/infer/generate.h"
#include "weft/models/decoder.h"
#include "weft/models/gpt.h"
#include "weft/models/llama.h"
#include "weft/nn/layers.h"
#include "weft/tensor/compile.h"

using namespace weft;
using namespace weft::test;

namespace {
constexpr int64_t vocabulary = 61, most_tokens = 48;

models::GptConfig gpt() {
  return {.vocab_size = vocabulary,
          .max_position_embeddings = most_tokens,
          .hidden_size = 24,
          .num_hidden_layers = 2,
          .num_attention_heads = 3,
          .initializer_range = 0.3};
}
models::LlamaConfig llama() {
  return {.vocab_size = vocabulary,
          .max_position_embeddings = most_tokens,
          .hidden_size = 32,
          .intermediate_size = 40,
          .num_hidden_layers = 2,
          .num_attention_heads = 4,
          .num_key_value_heads = 2,
          .initializer_range = 0.3};
}
// Returns a config with every switch of a decoder that a published family sets.
models::DecoderConfig everything() {
  models::DecoderConfig config = llama().decoder();
  config.layers = {{.window = 5}, {.rope = 1}, {.window = 3, .rope = -1}};
  config.ropes.push_back({.theta = 500, .type = "linear", .factor = 4});
  config.norm = models::DecoderConfig::Norm::rms_plus_one;
  config.qkv_bias = config.out_bias = config.mlp_bias = true;
  config.embedding_scale = 3;
  config.attention_softcap = 2, config.logit_softcap = 4;
  config.attention_scale = 0.4;
  config.rope_dimension = 4;
  config.names.qkv = "qkv_proj", config.names.gate_up = "gate_up_proj";
  config.names.attention_post_norm = "attention_post_norm";
  config.names.mlp_norm = "mlp_norm", config.names.mlp_post_norm = "mlp_post_norm";
  return config;
}
models::DecoderConfig parallel() {
  models::DecoderConfig config = llama().decoder();
  config.num_key_value_heads = config.num_attention_heads;
  config.norm = models::DecoderConfig::Norm::layer;
  config.parallel = config.qkv_by_head = config.transposed = true;
  config.names.qkv = "query_key_value", config.names.gate = "";
  return config;
}
models::DecoderConfig normalized(models::DecoderConfig::QkNorm kind) {
  models::DecoderConfig config = llama().decoder();
  config.qk_norm = kind;
  config.names.q_norm = "q_norm", config.names.k_norm = "k_norm";
  return config;
}

std::vector<int32_t> some_tokens(int64_t count, int32_t seed) {
  std::vector<int32_t> tokens;
  tokens.reserve(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i)
    tokens.push_back(static_cast<int32_t>((seed * 31 + i * i * 7 + i) % vocabulary));
  return tokens;
}

// Whole computes logits as in training, without a cache, in one step for sequences of any length:
// the tokens behind a sequence have no influence on it.
class Whole {
 public:
  explicit Whole(const Model& model)
      : step_([&model](std::span<const Tensor> in) { return std::vector{model(in[0])}; },
              {.mode = Mode::eval, .device = "cpu"}) {}

  // Returns the logits after all tokens.
  std::vector<double> logits(const std::vector<int32_t>& tokens) {
    std::vector<int64_t> ids(most_tokens, 7);
    std::ranges::copy(tokens, ids.begin());
    const std::vector<double> all =
        step_.run(std::array{tensor(ids, {1, most_tokens})})[0].to_doubles();
    const auto end = all.begin() + std::ssize(tokens) * vocabulary;
    return {end - vocabulary, end};
  }

 private:
  CompiledStep step_;
};

void check_logits(const infer::TokenModel& tokens, int64_t row, Whole& whole,
                  const std::vector<int32_t>& history) {
  CAPTURE(row);
  CAPTURE(history.size());
  const std::span<const float> got = tokens.logits(row);
  const std::vector<double> want = whole.logits(history);
  double worst = 0, size = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    worst = std::max(worst, std::fabs(static_cast<double>(got[i]) - want[i]));
    size = std::max(size, std::fabs(want[i]));
  }
  CHECK(worst <= 1e-5 * size);
}

// Three sequences of different lengths read their prompts in one call and go on at different times.
void check_continuations(const Model& model) {
  const std::unique_ptr<infer::TokenModel> tokens =
      infer::make_token_model(model, vocabulary, most_tokens, {.batch = 3, .device = "cpu"});
  std::vector<std::vector<int32_t>> histories = {some_tokens(1, 1), some_tokens(20, 2),
                                                 some_tokens(7, 3)};
  Whole whole(model);
  std::vector<infer::RowTokens> rows;
  rows.reserve(histories.size());
  for (const std::vector<int32_t>& history : histories) rows.push_back({history});
  tokens->append(rows);
  for (int64_t b = 0; b < 3; ++b)
    check_logits(*tokens, b, whole, histories[static_cast<size_t>(b)]);
  const std::array<std::array<int64_t, 3>, 5> more = {
      {{1, 1, 1}, {1, 0, 1}, {0, 18, 1}, {1, 1, 0}, {40, 1, 1}}};
  for (const std::array<int64_t, 3>& counts : more) {
    for (size_t b = 0; b < 3; ++b) {
      std::vector<int32_t>& history = histories[b];
      const std::vector<int32_t> added = some_tokens(counts[b], static_cast<int32_t>(b + 5));
      history.insert(history.end(), added.begin(), added.end());
    }
    for (size_t b = 0; b < 3; ++b)
      rows[b] = {std::span(histories[b]).last(static_cast<size_t>(counts[b]))};
    tokens->append(rows);
    for (int64_t b = 0; b < 3; ++b)
      check_logits(*tokens, b, whole, histories[static_cast<size_t>(b)]);
  }
  // A sequence begins anew beside others, and one goes back.
  histories[1] = some_tokens(9, 40);
  rows = {infer::RowTokens(), {histories[1], 0}, infer::RowTokens()};
  tokens->append(rows);
  for (int64_t b = 0; b < 3; ++b)
    check_logits(*tokens, b, whole, histories[static_cast<size_t>(b)]);
  histories[0].resize(11);
  histories[0].push_back(3);
  rows = {{std::span(histories[0]).last(1), 11}, infer::RowTokens(), infer::RowTokens()};
  tokens->append(rows);
  check_logits(*tokens, 0, whole, histories[0]);
}

// A user's model, which no decoder of weft's is: the logits of a token are those of the mean of the
// embeddings so far, which its cache holds.
class Mean : public Model, public Cached {
 public:
  static constexpr int64_t width = 16;
  Mean()
      : Model(InputKind::tokens, {}),
        tokens_(*this, "tokens", vocabulary, width),
        head_(*this, "head", width, vocabulary) {}

  const Cached* cached() const override { return this; }
  TokenCache make_cache(int64_t batch, int64_t capacity) const override {
    return {.batch = batch,
            .capacity = capacity,
            .variables = {Variable("embeddings", {DType::f32, {batch, capacity, width}},
                                   Category::buffer_state)}};
  }
  Tensor continue_from(const TokenCache& cache, const Tensor& tokens, const Tensor& start,
                       const Tensor& last) const override {
    const Variable& embeddings = cache.variables[0];
    const Tensor all = update_at(embeddings.value(), 1, start, tokens_(tokens));
    embeddings.assign(all);
    const Tensor at = unsqueeze(start + cast(last, DType::i64), 1);  // of each row's last token
    return head_(mean_until(all, at));
  }

 protected:
  Tensor forward(const Tensor& tokens) const override {
    const Tensor all = tokens_(tokens);
    std::vector<Tensor> each;
    each.reserve(static_cast<size_t>(tokens.dim(1)));
    for (int64_t at = 0; at < tokens.dim(1); ++at)
      each.push_back(head_(mean_until(all, full({tokens.dim(0), 1}, at, DType::i64))));
    return stack(each, 1);
  }

 private:
  // Returns the mean [B, width] of the rows of `all` [B, T, width] up to `at` [B, 1].
  static Tensor mean_until(const Tensor& all, const Tensor& at) {
    const Tensor counts = cast(arange(all.dim(1)) <= at, DType::f32);  // [B, T]
    return sum(all * unsqueeze(counts, 2), {.axes = {1}}) /
           sum(counts, {.axes = {1}, .keepdim = true});
  }

  nn::Embedding tokens_;
  nn::Linear head_;
};
}  // namespace

TEST_CASE("a user's model generates from a cache of its own") {
  const Mean model;
  check_continuations(model);
  const auto tokens = infer::make_token_model(model, vocabulary, most_tokens, {.device = "cpu"});
  const infer::TokenModelPlan plan = tokens->plan(32);
  CHECK(plan.cache_bytes == most_tokens * Mean::width * 4);
  CHECK(plan.prefill_tokens == 32);  // a prompt alone is read, not the whole context
}

TEST_CASE("sequences continued from a cache have the logits of whole sequences") {
  check_continuations(models::Gpt(gpt()));
  check_continuations(models::Llama(llama()));
  using Decoder = models::Decoder;
  check_continuations(Decoder(everything(), {}));
  check_continuations(Decoder(parallel(), {}));
  check_continuations(Decoder(normalized(models::DecoderConfig::QkNorm::heads), {}));
  check_continuations(Decoder(normalized(models::DecoderConfig::QkNorm::all), {}));
}

TEST_CASE("a model without a cache continues sequences by computing them again") {
  const std::unique_ptr<Model> lstm =
      make_model("lstm", {{"hidden_size", int64_t{12}}},
                 {.kind = InputKind::tokens, .input = {most_tokens}, .classes = vocabulary});
  check_continuations(*lstm);
}

TEST_CASE("a sequence beyond the context is refused and changes nothing") {
  const models::Llama model(llama());
  const std::unique_ptr<infer::TokenModel> tokens =
      infer::make_token_model(model, vocabulary, most_tokens, {.context = 12, .device = "cpu"});
  const std::vector<int32_t> all = some_tokens(13, 1);
  std::vector<infer::RowTokens> rows = {{std::span(all).first(12)}};
  tokens->append(rows);
  Whole whole(model);
  check_logits(*tokens, 0, whole, some_tokens(12, 1));
  rows = {{std::span(all).last(1)}};
  CHECK(error_of([&] { tokens->append(rows); }) ==
        "usage: a sequence of 13 tokens exceeds the context of 12.");
  CHECK(tokens->history(0).size() == 12);
  CHECK(error_of([&] {
          infer::make_token_model(model, vocabulary, most_tokens, {.context = 49});
        }) == "usage: the context is at most 48 tokens, as the model says. Got 49.");
}

TEST_CASE("a decoding step allocates nothing of its own and uses what was planned") {
  if (!testing::can_watch_allocations()) return;
  models::LlamaConfig config = llama();
  config.max_position_embeddings = 4096;
  const models::Llama model(config);
  const TokenCache cache = model.make_cache(2, config.max_position_embeddings);
  CompiledStep step(
      [&](std::span<const Tensor> in) {
        return std::vector{model.continue_from(cache, in[0], in[1], in[2])};
      },
      {.mode = Mode::eval, .device = "cpu"});
  const Tensor ids = tensor(std::vector<int64_t>{3, 4}, {2, 1});
  const Tensor start = tensor(std::vector<int64_t>{0, 7}, {2});
  const Tensor last = tensor(std::vector<int64_t>{0, 0}, {2});
  const std::array inputs{ids, start, last};
  for (int warm_up = 0; warm_up < 2; ++warm_up) step.run(inputs);
  const testing::Allocations used = testing::allocations_of([&] { step.run(inputs); });
  CHECK(used.own == 0);
  CHECK(used.kept == 0);
  const PlanSummary plan = step.plan(std::array{ids.type(), start.type(), last.type()});
  // The state is that of the cache and the weights, and neither is copied.
  size_t state = 0;
  for (const Variable& variable : model.variables()) state += variable.type().bytes();
  CHECK(plan.state_bytes >= state + static_cast<size_t>(cache.bytes()));
  CHECK(plan.state_bytes <= state + static_cast<size_t>(cache.bytes()) + 64 * 64);
  CHECK(plan.arena_bytes < static_cast<size_t>(cache.bytes()) / 16);
}

namespace {
// Records the sizes of all buffers while it lives.
struct BufferSizes {
  BufferSizes() {
    seen.clear();
    set_buffer_source([](size_t bytes) {
      {
        const std::lock_guard lock(mutex);
        seen.push_back(bytes);
      }
      const size_t room = (bytes + buffer_alignment) / buffer_alignment * buffer_alignment;
      std::shared_ptr<void> memory(std::aligned_alloc(buffer_alignment, room), std::free);
      std::memset(memory.get(), 0, room);
      return memory;
    });
  }
  ~BufferSizes() { set_buffer_source(nullptr); }
  static bool have(size_t bytes) { return std::ranges::find(seen, bytes) != seen.end(); }
  static inline std::mutex mutex;
  static inline std::vector<size_t> seen;
};
}  // namespace

TEST_CASE("the arena of token models may be memory of the caller, which they share") {
  const models::Llama first(llama());
  const models::Gpt second(gpt());
  auto make = [](const Model& model, std::span<std::byte> workspace) {
    return infer::make_token_model(model, vocabulary, most_tokens,
                                   {.device = "cpu", .workspace = workspace});
  };
  const std::vector<int32_t> all = some_tokens(24, 1);
  auto append = [&](infer::TokenModel& tokens, size_t from, size_t count) {
    const infer::RowTokens row{std::span(all).subspan(from, count)};
    tokens.append(std::span(&row, 1));
  };
  size_t bytes = 0;
  for (const Model* model : {static_cast<const Model*>(&first), static_cast<const Model*>(&second)})
    bytes = std::max(bytes, make(*model, {})->plan(20).arena_bytes());
  const size_t arena = make(first, {})->plan(20).prefill.arena_bytes;
  const std::shared_ptr<Buffer> memory = Buffer::allocate(bytes);
  const std::span<std::byte> workspace(memory->data, bytes);

  const auto own = make(first, {}), other = make(second, {});
  {
    const BufferSizes sizes;
    append(*own, 0, 20);
    CHECK(sizes.have(arena));
  }
  append(*other, 0, 20);
  std::ranges::fill(workspace, std::byte{0x5a});
  const BufferSizes sizes;
  const auto lent = make(first, workspace), other_lent = make(second, workspace);
  append(*lent, 0, 20);
  CHECK(!sizes.have(arena));
  CHECK(std::ranges::count(workspace.first(arena), std::byte{0x5a}) <
        static_cast<std::ptrdiff_t>(arena / 2));
  append(*other_lent, 0, 20);
  for (size_t at = 20;; ++at) {
    CHECK(std::ranges::equal(lent->logits(0), own->logits(0)));
    CHECK(std::ranges::equal(other_lent->logits(0), other->logits(0)));
    if (at == all.size()) break;
    for (infer::TokenModel* tokens : {own.get(), other.get(), lent.get(), other_lent.get()})
      append(*tokens, at, 1);
  }
}

TEST_CASE("a workspace that is too small or not aligned is refused with what is wanted") {
  const models::Llama model(llama());
  const std::shared_ptr<Buffer> memory = Buffer::allocate(4096);
  const std::span<std::byte> workspace(memory->data, 4096);
  auto make = [&](std::span<std::byte> lent) {
    return infer::make_token_model(model, vocabulary, most_tokens,
                                   {.device = "cpu", .workspace = lent});
  };
  const auto tokens = make(workspace.first(64));
  const std::vector<int32_t> all = some_tokens(20, 1);
  const infer::RowTokens row{all};
  CHECK_THROWS_WITH_AS(
      tokens->append(std::span(&row, 1)),
      fmt::format("[workspace] the step needs an arena of {} bytes. Got 64. Hint: its plan tells "
                  "arena_bytes beforehand.",
                  tokens->plan(20).prefill.arena_bytes)
          .c_str(),
      Error);
  CHECK_THROWS_WITH_AS(make(workspace.subspan(8)),
                       doctest::Contains("[workspace] must be aligned to 64 bytes. Got an address "
                                         "that is 8 bytes beyond."),
                       Error);
  CompiledStep step([](std::span<const Tensor> in) { return std::vector{in[0] + in[0]}; },
                    {.mode = Mode::eval, .device = "cpu"});
  step.use_workspace(workspace);
  const Tensor result = step.run(std::array{full({3}, 2.0)})[0];
  CHECK(result.to_doubles() == std::vector<double>{4, 4, 4});
  CHECK(result->data() >= workspace.data());
  CHECK(result->data() < workspace.data() + workspace.size());
  CHECK_THROWS_WITH_AS(step.use_workspace(workspace),
                       doctest::Contains("[workspace] the step has an arena already."), Error);
}

TEST_CASE("text is generated to a length, a stop text or a token, and streamed") {
  const models::Llama model(llama());
  const std::unique_ptr<infer::TokenModel> tokens =
      infer::make_token_model(model, vocabulary, most_tokens, {.batch = 2, .device = "cpu"});
  const data::TextCodec codec(io::Vocabulary::bytes());
  const std::vector<std::vector<int32_t>> prompts = {some_tokens(5, 1), some_tokens(9, 2)};
  infer::GenerateOptions options{.max_new_tokens = 20, .sampling = {.seed = 5}};
  std::array<std::string, 2> pieces;
  auto run = [&] {
    pieces = {};
    return infer::generate(*tokens, codec, prompts, options,
                           [&](size_t i, std::string_view piece) { pieces[i] += piece; });
  };
  const std::vector<infer::Generated> all = run();
  for (size_t i = 0; i < 2; ++i) {
    CHECK(all[i].tokens.size() == 20);
    CHECK(all[i].finish == infer::Finish::length);
    CHECK(pieces[i] == all[i].text);
  }
  CHECK(run()[1].tokens == all[1].tokens);
  // A sequence does not depend on those beside it, but the same prompt again has another text.
  for (size_t i = 0; i < 2; ++i)
    CHECK(infer::generate(*tokens, codec, std::span(prompts).subspan(i, 1), options)[0].tokens ==
          all[i].tokens);
  const std::vector<infer::Generated> twice =
      infer::generate(*tokens, codec, std::vector{prompts[1], prompts[1]}, options);
  CHECK(twice[0].tokens == all[1].tokens);
  CHECK(twice[1].tokens != all[1].tokens);

  options.reuse = true;  // of the prompts, the last token alone is read again
  CHECK(run()[0].tokens.size() == 20);
  options.reuse = false;
  options.stop = {all[0].text.substr(7, 3), "never"};
  const std::vector<infer::Generated> stopped = run();
  CHECK(stopped[0].text == all[0].text.substr(0, all[0].text.find(options.stop[0])));
  CHECK(stopped[0].finish == infer::Finish::stop);
  CHECK(pieces[0] == stopped[0].text);
  options.stop = {};
  options.end_tokens = {all[1].tokens[4]};
  const std::vector<infer::Generated> ended = run();
  CHECK(ended[1].finish == infer::Finish::end_token);
  CHECK(ended[1].tokens.size() <= 4);

  options.end_tokens = {};
  options.max_new_tokens = 1000;
  const std::vector<infer::Generated> full = run();
  CHECK(full[0].finish == infer::Finish::context);
  CHECK(full[0].tokens.size() == most_tokens - 5 + 1);
  options.slide = true;
  options.max_new_tokens = 120;
  const std::vector<infer::Generated> slid = run();
  CHECK(slid[0].tokens.size() == 120);
  CHECK(std::vector(slid[0].tokens.begin(), slid[0].tokens.begin() + 40) ==
        std::vector(full[0].tokens.begin(), full[0].tokens.begin() + 40));
}

TEST_CASE("prompts that are empty or too long, and weights that are NaN, are refused") {
  const models::Llama model(llama());
  const std::unique_ptr<infer::TokenModel> tokens =
      infer::make_token_model(model, vocabulary, most_tokens, {.device = "cpu"});
  const data::TextCodec codec(io::Vocabulary::bytes());
  auto refused = [&](const std::vector<int32_t>& prompt) {
    return error_of([&] { infer::generate(*tokens, codec, std::span(&prompt, 1), {}); });
  };
  CHECK(refused({}) == "usage: a prompt has at least one token.");
  CHECK(refused(some_tokens(49, 1)) == "usage: the prompt has 49 tokens, and the context is 48.");
  model.parameters().front().floats()[0] = NAN;
  CHECK(refused({0}) == "failed: the logits of token 1 of sequence 0 are NaN.");
}
