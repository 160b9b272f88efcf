// Finds the known word nearest to a mistyped one, for hints ("Did you mean ...?"), and quotes words
// for shells.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace weft {

// Returns the word with the least Damerau-Levenshtein distance in characters (a transposition is
// one edit); empty where none is within `most` edits or more than half of the word differs. The
// case of letters counts only between words that are equally near.
std::string_view nearest(std::string_view word, std::span<const std::string_view> known,
                         size_t most = 3);

// Returns " Did you mean 'NAME'?", escaped for terminals. NAME is the first name that `pattern`
// (weft/base/text/pattern.h) matches if case is ignored, or else nearest(); "" if there is neither.
std::string did_you_mean(std::string_view pattern, std::span<const std::string_view> names);
std::string did_you_mean(std::string_view pattern, const std::vector<std::string>& names);

// Returns `text` as one word of a POSIX shell, quoted where it has special characters.
std::string shell_word(std::string_view text);

}  // namespace weft
