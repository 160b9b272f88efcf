#include "weft/base/text/utf8.h"

#include <fmt/format.h>

namespace weft {

std::optional<char32_t> next_utf8(std::string_view text, size_t& offset) {
  auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  unsigned char first = byte(offset);
  if (first < 0x80) return text[offset++];
  int length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || offset + static_cast<size_t>(length) > text.size())
    return std::nullopt;
  char32_t code = first & (0x7f >> length);
  for (int i = 1; i < length; ++i) {
    unsigned char next = byte(offset + static_cast<size_t>(i));
    if ((next & 0xc0) != 0x80) return std::nullopt;
    code = code << 6 | (next & 0x3f);
  }
  constexpr char32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
  bool surrogate = code >= 0xd800 && code <= 0xdfff;
  if (code < smallest[length] || code > 0x10ffff || surrogate) return std::nullopt;
  offset += static_cast<size_t>(length);
  return code;
}

std::string escaped(std::string_view text, std::string_view except) {
  std::string result;
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const auto code = next_utf8(text, at);
    if (!code) ++at;
    const std::string_view bytes = text.substr(begin, at - begin);
    const bool is_control = code && (*code < 0x20 || (*code >= 0x7f && *code < 0xa0));
    if (code && (!is_control || except.find(bytes) != std::string_view::npos))
      result += bytes;
    else
      for (char c : bytes) result += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  }
  return result;
}

std::string printable(std::string_view text) {
  constexpr size_t longest = 120;
  if (text.size() <= longest) return escaped(text);
  size_t end = longest;  // not within a UTF-8 character
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  return escaped(text.substr(0, end)) + "...";
}

}  // namespace weft
