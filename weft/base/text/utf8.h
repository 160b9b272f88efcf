// Decodes UTF-8 (RFC 3629), and escapes untrusted text for terminals.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace weft {

// Returns the code point at `offset` and advances `offset` past it. For invalid UTF-8 (overlong
// forms, surrogates, over U+10FFFF, truncated) returns nullopt and leaves `offset` alone.
std::optional<char32_t> next_utf8(std::string_view text, size_t& offset);

// Returns `text` with control characters that terminals interpret (C0, DEL and C1, except those in
// `kept`) and bytes that are not UTF-8 escaped as "\xNN".
std::string escaped(std::string_view text, std::string_view except = {});
// Returns the beginning of `text`, 120 bytes at most, escaped for a message.
std::string printable(std::string_view text);

}  // namespace weft
