// Hints: the known word that is nearest to a mistyped one ("Did you mean ...?"), and words that a
// shell takes as they are.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace weft {

// By the distance of Damerau and Levenshtein (neighbours that changed places are one edit); empty
// where none is within `most` edits, or half of the word is wrong.
std::string_view nearest(std::string_view word, std::span<const std::string_view> known,
                         size_t most = 3);

// `text` as one word of a POSIX shell: in quotes where it has characters that a shell reads.
std::string shell_word(std::string_view text);

}  // namespace weft
