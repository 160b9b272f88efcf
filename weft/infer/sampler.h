// Chooses the next token from the logits of a language model.
#pragma once

#include <cstdint>
#include <span>

namespace weft::infer {

// SamplingOptions have the names of Hugging Face's generation_config.json. Logits pass the
// penalties, the temperature, top_k, top_p and min_p, in this order.
struct SamplingOptions {
  double temperature = 1;  // 0: always the likeliest
  int64_t top_k = 0;       // samples from the `top_k` likeliest; 0: all
  // Samples from the likeliest tokens whose probabilities add up to `top_p` (nucleus sampling,
  // Holtzman et al. 2020, "The curious case of neural text degeneration"); 1: all.
  double top_p = 1;
  // Samples from tokens that are at least `min_p` times as likely as the likeliest (Nguyen et al.
  // 2024, "Turning up the heat"); 0: all.
  double min_p = 0;
  // Positive logits of tokens that the sequence has are divided by the penalty, negative ones
  // multiplied (Keskar et al. 2019, "CTRL"); 1: none.
  double repetition_penalty = 1;
  double presence_penalty = 0;   // subtracted from the logits of tokens that the text has
  double frequency_penalty = 0;  // subtracted for each time that the text has the token
  int64_t seed = 0;
};
// Throws Error(usage) that names the option and its range.
void check(const SamplingOptions& options);

struct Sampled {
  int32_t token = 0;
  double log_probability = 0;  // as the model gives it, before penalties and temperature
};
// `history` is the whole sequence, which begins with the `prompt` tokens of the prompt. `stream`
// and `step` count the sequences and the draws of the seed.
Sampled sample(std::span<const float> logits, const SamplingOptions& options,
               std::span<const int32_t> history, size_t prompt, int64_t stream, int64_t step);

}  // namespace weft::infer
