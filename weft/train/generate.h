// Text from a language model: the logits of the last position in a fixed window (one shape
// compiles), and the choice of a token from them.
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
  int64_t top_k = 0;       // choose among so many; 0: all
  // Choose among the likeliest whose probabilities add up to so much (Holtzman et al. 2020, "The
  // curious case of neural text degeneration"), of those that top_k leaves; 1: all.
  double top_p = 1;
  int64_t seed = 0;
  std::string stop = {};  // ends when this character is written (which is not returned)
};

class Generator {
 public:
  // The experiment must outlive this. Throws Error(usage) unless it is a language model.
  Generator(const Experiment& experiment, const std::string& device);

  // Logits of the token that follows; a longer text is cut to its last seq_len tokens.
  std::vector<double> next_logits(std::span<const int32_t> tokens);
  // What follows `prompt`. `on_text` sees each piece as it is written. Throws Error(data) if the
  // prompt has characters that the vocabulary lacks, Error(usage) if it is empty,
  // the temperature is negative or no number, or top_p is outside (0, 1].
  std::string generate(std::string_view prompt, const GenerateOptions& options,
                       const std::function<void(std::string_view)>& on_text = {});

 private:
  const Experiment& experiment_;
  int64_t window_;
  CompiledStep step_;
};

// The index of the chosen token; draw number `step` of the seed.
int32_t choose_token(std::span<const double> logits, const GenerateOptions& options, int64_t step);

}  // namespace weft::train
