// Reads and applies truncation and padding, as a tokenizer's file describes them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "weft/data/tokenizer/part.h"

namespace weft::data::tokenizer {

struct Truncation {
  size_t most = 0;        // ids, special tokens included
  bool at_begin = false;  // removes from the begin of the text
};
struct Padding {
  size_t length = 0;    // 0: as long as the ids are
  size_t multiple = 1;  // then up to a multiple of this
  bool at_begin = false;
  int32_t id = 0;
};

Truncation read_truncation(const Part& part);
Padding read_padding(const Part& part);

// Removes ids of the text from `ids`, where it follows `before` special ids, so that `after` more
// ids fit.
void truncate(const Truncation& truncation, size_t before, size_t after, std::vector<int32_t>& ids);
void pad(const Padding& padding, std::vector<int32_t>& ids);

}  // namespace weft::data::tokenizer
