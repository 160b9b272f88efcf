// UTF-8 (RFC 3629), and text of others as a terminal may have it.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace weft {

// The code point that begins at `offset`, which moves past it. Nullopt, and `offset` stays, where
// that is no UTF-8: overlong forms, surrogates, values over U+10FFFF, cut sequences.
std::optional<char32_t> next_utf8(std::string_view text, size_t& offset);

// `text` with its control characters, which terminals take as commands (C0, DEL and C1, but those
// in `kept`), and bytes that are no UTF-8 as "\xNN".
std::string escaped(std::string_view text, std::string_view kept = {});

}  // namespace weft
