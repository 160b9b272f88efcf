#include "weft/infer/generate.h"

#include <algorithm>
#include <cmath>

#include "weft/base/error.h"
#include "weft/base/host/stopwatch.h"

namespace weft::infer {
namespace {
// StopTexts holds back the end of a text while it may be the beginning of a stop text.
class StopTexts {
 public:
  explicit StopTexts(const std::vector<std::string>& stops) : stops_(stops) {}

  // Appends `piece`, and returns the text that can be shown now. Sets found() once a stop text is
  // complete.
  std::string add(std::string_view piece) {
    held_ += piece;
    size_t end = std::string::npos;
    for (const std::string& stop : stops_) end = std::min(end, held_.find(stop));
    found_ = end != std::string::npos;
    if (!found_) end = held_.size() - longest_beginning();
    return take(end);
  }
  std::string finish() { return take(held_.size()); }
  bool found() const { return found_; }

 private:
  // Returns the length of the longest end of held_ that begins a stop text.
  size_t longest_beginning() const {
    size_t longest = 0;
    for (const std::string& stop : stops_)
      for (size_t length = std::min(stop.size(), held_.size()); length > longest; --length)
        if (held_.ends_with(std::string_view(stop).substr(0, length))) longest = length;
    return longest;
  }
  std::string take(size_t end) {
    std::string text = held_.substr(0, end);
    held_.erase(0, end);
    return text;
  }

  const std::vector<std::string>& stops_;
  std::string held_;
  bool found_ = false;
};

// Sequence is one prompt and the text that was generated for it.
class Sequence {
 public:
  Sequence(size_t index, int64_t stream, const std::vector<int32_t>& prompt,
           const data::TextCodec& codec, const GenerateOptions& options, const OnText& on_text)
      : index_(index),
        draws_(stream),
        history_(prompt),
        prompt_(prompt.size()),
        stream_(codec.stream()),
        stop_(options.stop),
        options_(options),
        on_text_(on_text) {}

  bool done() const { return done_; }
  std::span<const int32_t> history() const { return history_; }
  Generated take() { return std::move(generated_); }

  // Samples the next token. Ids beyond `known` stand for no text, so they are not sampled.
  void sample_from(std::span<const float> logits, int64_t known) {
    const auto usable = static_cast<size_t>(std::min(known, std::ssize(logits)));
    for (float logit : logits.first(usable))
      if (std::isnan(logit))
        throw Error(ErrorKind::non_finite, "the logits of token {} of sequence {} are NaN.",
                    history_.size(), index_);
    const Sampled sampled = sample(logits.first(usable), options_.sampling, history_, prompt_,
                                   draws_, std::ssize(generated_.tokens));
    if (std::ranges::find(options_.end_tokens, sampled.token) != options_.end_tokens.end())
      return finish(Finish::end_token);
    history_.push_back(sampled.token);
    if (generated_.tokens.empty()) since_first_ = Stopwatch();
    generated_.tokens.push_back(sampled.token);
    generated_.seconds = since_first_.milliseconds() / 1000;
    generated_.log_probabilities.push_back(sampled.log_probability);
    show(stop_.add(stream_.add(sampled.token)));
    if (stop_.found()) return finish(Finish::stop);
    if (std::ssize(generated_.tokens) >= options_.max_new_tokens) finish(Finish::length);
  }
  void finish(Finish why) {
    done_ = true;
    generated_.finish = why;
    if (stop_.found()) return;
    show(stop_.add(stream_.finish()));
    if (stop_.found())
      generated_.finish = Finish::stop;
    else
      show(stop_.finish());
  }

 private:
  void show(const std::string& piece) {
    if (piece.empty()) return;
    generated_.text += piece;
    if (on_text_) on_text_(index_, piece);
  }

  size_t index_;
  int64_t draws_;  // the stream of its random numbers
  std::vector<int32_t> history_;
  size_t prompt_;  // tokens of the history that were given
  data::TextStream stream_;
  StopTexts stop_;
  const GenerateOptions& options_;
  const OnText& on_text_;
  Generated generated_;
  Stopwatch since_first_;
  bool done_ = false;
};

// Returns the length of the common beginning, but for the prompt's last token, which must be read.
size_t common(std::span<const int32_t> history, std::span<const int32_t> prompt) {
  const auto ends = std::ranges::mismatch(history, prompt);
  return std::min(static_cast<size_t>(ends.in2 - prompt.begin()), prompt.size() - 1);
}

void check_prompts(const TokenModel& model, std::span<const std::vector<int32_t>> prompts) {
  WEFT_ASSERT(std::ssize(prompts) <= model.batch(), "more prompts than sequences");
  for (const std::vector<int32_t>& prompt : prompts) {
    if (prompt.empty()) throw Error(ErrorKind::usage, "a prompt has at least one token.");
    if (std::ssize(prompt) > model.context())
      throw Error(ErrorKind::usage, "the prompt has {} tokens, and the context is {}.",
                  prompt.size(), model.context());
  }
}
}  // namespace

std::string_view name(Finish finish) {
  constexpr std::string_view names[] = {"length", "context", "stop", "end_token"};
  return names[static_cast<size_t>(finish)];
}

std::vector<Generated> generate(TokenModel& model, const data::TextCodec& codec,
                                std::span<const std::vector<int32_t>> prompts,
                                const GenerateOptions& options, const OnText& on_text) {
  check(options.sampling);
  check_prompts(model, prompts);
  std::vector<Sequence> sequences;
  sequences.reserve(prompts.size());
  // A text does not depend on the prompts beside it, but a prompt given twice has two texts.
  for (size_t i = 0; i < prompts.size(); ++i)
    sequences.emplace_back(i, std::ranges::count(prompts.first(i), prompts[i]), prompts[i], codec,
                           options, on_text);
  std::vector<RowTokens> rows(static_cast<size_t>(model.batch()));
  for (size_t i = 0; i < prompts.size(); ++i) {
    const size_t kept =
        options.reuse ? common(model.history(static_cast<int64_t>(i)), prompts[i]) : 0;
    rows[i] = {std::span(prompts[i]).subspan(kept), static_cast<int64_t>(kept)};
  }
  model.append(rows);
  while (true) {
    bool any = false;
    std::ranges::fill(rows, RowTokens());
    for (size_t i = 0; i < sequences.size(); ++i) {
      Sequence& sequence = sequences[i];
      if (sequence.done()) continue;
      const auto row = static_cast<int64_t>(i);
      sequence.sample_from(model.logits(row), codec.size());
      if (sequence.done()) continue;
      const bool is_full = std::ssize(model.history(row)) == model.context();
      if (is_full && !options.slide) {
        sequence.finish(Finish::context);
        continue;
      }
      const auto kept = static_cast<size_t>(is_full ? model.context() / 2 + 1 : 1);
      rows[i].tokens = sequence.history().last(kept);
      if (is_full) rows[i].prefix = 0;
      any = true;
    }
    if (!any) break;
    model.append(rows);
  }
  std::vector<Generated> all;
  all.reserve(sequences.size());
  for (Sequence& sequence : sequences) all.push_back(sequence.take());
  return all;
}

}  // namespace weft::infer
