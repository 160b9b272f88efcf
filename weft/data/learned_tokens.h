// Finds the tokens of a text that belong to parts of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weft/data/tokenizer/tokenizer.h"

namespace weft::data {

// LearnedPart is the part of a text from byte `begin` up to byte `end`. A token belongs to the part
// if its last byte does; with `touched`, if any of its bytes does, as transformers counts the
// tokens of {% generation %}.
struct LearnedPart {
  size_t begin = 0, end = 0;
  bool touched = false;
};

// Returns for each token of a text whether it belongs to a part. Parts are ascending and do not
// overlap. If a normalizer rewrote the text, the bound of a part is the first token in which the
// text up to the bound, encoded alone, differs from `tokens`.
std::vector<bool> learned_tokens(const Tokenizer& tokenizer, const std::string& text,
                                 std::span<const int32_t> tokens,
                                 std::span<const LearnedPart> parts);

// Returns the number of bytes at the start of `text` whose tokens `other` has, too; other.size() if
// `text` begins with `other`.
size_t common_bytes(const Tokenizer& tokenizer, const std::string& text, const std::string& other);

}  // namespace weft::data
