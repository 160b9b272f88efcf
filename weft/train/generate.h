// Text generation with a language model: computes the logits of the last position in a window of
// fixed length (so that only one shape is compiled), and samples a token from them.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "weft/tensor/compile.h"
#include "weft/train/experiment.h"

namespace weft::train {

struct GenerateOptions {
  int64_t max_new_tokens = 200;
  double temperature = 1;  // 0: always the likeliest
  int64_t top_k = 0;       // samples from the `top_k` likeliest; 0: all
  // Samples from the likeliest tokens whose probabilities add up to `top_p` (nucleus sampling,
  // Holtzman et al. 2020, "The curious case of neural text degeneration"), after top_k; 1: all.
  double top_p = 1;
  int64_t seed = 0;
  std::string stop = {};  // generation ends at this character, which is not returned
};

class Generator {
 public:
  // The experiment must outlive the generator. Throws Error(usage) unless it is a language model.
  Generator(const Experiment& experiment, const std::string& device);

  // Returns the logits of the next token; only the last seq_len tokens are read.
  std::vector<double> next_logits(std::span<const int32_t> tokens);
  // Returns the continuation of `prompt`. `on_text` is called with each piece as it is generated.
  // Throws Error(data) if the prompt has characters that the vocabulary lacks, Error(usage) if it
  // is empty, the temperature is negative or NaN, or top_p is outside (0, 1].
  std::string generate(std::string_view prompt, const GenerateOptions& options,
                       const std::function<void(std::string_view)>& on_text = {});

 private:
  const Experiment& experiment_;
  int64_t window_;
  CompiledStep step_;
};

// Returns the index of the sampled token; `step` counts the random draws of the seed.
int32_t choose_token(std::span<const double> logits, const GenerateOptions& options, int64_t step);

}  // namespace weft::train
