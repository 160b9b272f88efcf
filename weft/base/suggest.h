// Finds the known word nearest to a mistyped one, for hints ("Did you mean ...?"), and quotes words
// for shells.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace weft {

// Returns the word with the least Damerau-Levenshtein distance (a transposition is one edit); empty
// where none is within `most` edits or more than half of the word differs.
std::string_view nearest(std::string_view word, std::span<const std::string_view> known,
                         size_t most = 3);

// Returns `text` as one word of a POSIX shell, quoted where it has special characters.
std::string shell_word(std::string_view text);

}  // namespace weft
