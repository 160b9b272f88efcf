// Generates text: samples tokens from a TokenModel until a length, a token or a text ends them.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weft/data/text_codec.h"
#include "weft/infer/sampler.h"
#include "weft/infer/token_model.h"

namespace weft::infer {

struct GenerateOptions {
  int64_t max_new_tokens = 200;
  SamplingOptions sampling = {};
  std::vector<std::string> stop = {};    // texts that end a sequence; they are not returned
  std::vector<int32_t> end_tokens = {};  // ids that end a sequence; they are not returned
  // With `slide` a sequence that fills the context continues from its last half; else it ends.
  bool slide = false;
  // With `reuse` a prompt reuses the cached keys and values of the prefix that it shares with the
  // sequence before it. Its logits may round differently from the logits of a whole prefill.
  bool reuse = false;
};

enum class Finish : uint8_t { length, context, stop, end_token };
std::string_view name(Finish finish);

struct Generated {
  std::string text;  // after the prompt
  std::vector<int32_t> tokens;
  std::vector<double> log_probabilities;  // one per token, by the model
  Finish finish = Finish::length;
  double seconds = 0;  // from the first token to the last
};

// Called with the index of the sequence and a piece of its text, which ends between characters.
using OnText = std::function<void(size_t sequence, std::string_view piece)>;

// Continues prompts of ids, at most as many as the model's batch. Throws Error(usage) for an empty
// prompt or one beyond the context, Error(non_finite) for logits that are not finite.
std::vector<Generated> generate(TokenModel& model, const data::TextCodec& codec,
                                std::span<const std::vector<int32_t>> prompts,
                                const GenerateOptions& options, const OnText& on_text = {});

}  // namespace weft::infer
