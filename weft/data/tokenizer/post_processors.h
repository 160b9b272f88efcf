// Post-processors add the special tokens around a text.
#pragma once

#include <cstdint>
#include <vector>

#include "weft/data/tokenizer/part.h"

namespace weft::data::tokenizer {

// Surroundings are the ids that stand before and after the ids of one text. A template for pairs of
// texts is not read.
struct Surroundings {
  std::vector<int32_t> before, after;
};

// Returns the ids that the post-processor of a file adds around one text.
Surroundings read_post_processor(const Part& part);

}  // namespace weft::data::tokenizer
