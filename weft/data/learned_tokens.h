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

// LearnedPart is the part of a text from byte `begin` up to byte `end`. Its tokens are those whose
// last byte it has; `touched`: those of which it has a byte at all, as transformers counts the
// tokens of {% generation %}.
struct LearnedPart {
  size_t begin = 0, end = 0;
  bool touched = false;
};

// Returns which tokens of a text belong to its parts, which are in its order and do not overlap.
// Where a normalizer rewrote the text, a part begins and ends where the text up to there has other
// tokens than the whole.
std::vector<bool> learned_tokens(const Tokenizer& tokenizer, const std::string& text,
                                 std::span<const int32_t> tokens,
                                 std::span<const LearnedPart> parts);

// Returns the byte of `text` up to which it has the tokens of `other`: that behind `other`, where
// it begins with it.
size_t common_bytes(const Tokenizer& tokenizer, const std::string& text, const std::string& other);

}  // namespace weft::data
