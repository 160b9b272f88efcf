// Generates samples of any shape on demand, for plans, benchmarks and first runs without files.
// They contain a pattern to learn, so that a loss that does not fall is a sign of a defect. A
// sample depends on the seed, the split and its index alone; both splits share the pattern.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "weft/data/loader.h"

namespace weft::data {

struct SyntheticOptions {
  int64_t classes = 1000;  // labels of images; the vocabulary of tokens
  int64_t labels = 0;      // label classes of token samples; 0: labels are the next tokens
  int64_t size = 10'000;   // samples in an epoch
  int64_t seed = 0;
};

// Returns images f32 [C, H, W] in [-1, 1), labels []: noise over a coarse pattern of the class.
std::shared_ptr<const Source> random_images(std::string_view split, const Shape& image,
                                            const SyntheticOptions& options = {});
// Returns tokens i64 [T]; labels [T] are the next tokens, t' = 5 t + one of 0 to 3, modulo the
// vocabulary. No model has a mean loss below log 4. With options.labels, the factor is 5 + the
// label [].
std::shared_ptr<const Source> random_tokens(std::string_view split, int64_t seq_len,
                                            const SyntheticOptions& options = {});

}  // namespace weft::data
