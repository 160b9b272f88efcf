#include "weft/base/text/wrap.h"

#include <algorithm>

namespace weft {

size_t width_of(std::string_view text) {
  size_t width = 0;
  bool escape = false;
  for (char c : text) {
    if (c == '\033') escape = true;
    if (!escape && (static_cast<unsigned char>(c) & 0xC0) != 0x80) ++width;
    if (escape && c == 'm') escape = false;
  }
  return width;
}

namespace {
// Returns the length in bytes of the longest prefix of `line` that fits in `width` columns and ends
// with a word; at least the first word, even where it is too wide.
size_t break_of(std::string_view line, size_t width) {
  size_t best = 0;
  for (size_t space = line.find(' '); space != std::string_view::npos;
       space = line.find(' ', space + 1)) {
    const std::string_view before = line.substr(0, space);
    if (before.find_first_not_of(' ') == std::string_view::npos) continue;
    if (best > 0 && width_of(before) > width) break;
    best = space;
  }
  return best > 0 ? best : line.size();
}

std::string wrapped_line(std::string_view line, size_t width) {
  if (width_of(line) <= width) return std::string(line);
  const size_t gap = line.rfind("  ");
  const size_t column = gap == std::string_view::npos ? 0 : width_of(line.substr(0, gap + 2));
  const std::string indent(column > 0 && column <= width * 2 / 3 ? column : 4, ' ');
  std::string result;
  for (size_t room = width;; room = width - std::min(width, indent.size())) {
    const size_t end = width_of(line) <= room ? line.size() : break_of(line, room);
    result += line.substr(0, end);
    result.erase(result.find_last_not_of(' ') + 1);
    const size_t next = line.find_first_not_of(' ', end);
    if (next == std::string_view::npos) return result;
    line.remove_prefix(next);
    result += "\n" + indent;
  }
}
}  // namespace

std::string wrapped(std::string_view text, size_t width) {
  std::string result;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    result += wrapped_line(text.substr(0, end), width);
    if (end < text.size()) result += '\n';
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return result;
}

}  // namespace weft
