// Samples made as they are asked for, of any shape: for plans, speed and first steps without files.
// There is something to learn in them, so that a loss that does not fall says something. A sample
// is a function of the seed and its index alone; training and test share what there is to learn.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "weft/data/loader.h"

namespace weft::data {

struct SyntheticOptions {
  int64_t classes = 1000;  // labels of images; the vocabulary of tokens
  int64_t labels = 0;      // of tokens: 0: the tokens that follow, else one for each sample
  int64_t size = 10'000;   // samples in an epoch
  int64_t seed = 0;
};

// f32 [C, H, W] in [-1, 1), labels []: noise over a coarse pattern of its class.
std::shared_ptr<const Source> random_images(std::string_view split, const Shape& image,
                                            const SyntheticOptions& options = {});
// i64 [T], labels [T] the tokens that follow: t' = 5 t + one of 0 to 3, modulo the vocabulary. No
// model has a mean loss below log 4. With options.labels, [] says by how much more than 5 it is.
std::shared_ptr<const Source> random_tokens(std::string_view split, int64_t seq_len,
                                            const SyntheticOptions& options = {});

}  // namespace weft::data
