#include "weft/base/text/pattern.h"

#include <cstddef>
#include <vector>

namespace weft {
namespace {
// Appends the match of each '*' to `stars`.
bool match_from(std::string_view text, std::string_view pattern,
                std::vector<std::string_view>& stars) {
  const size_t star = pattern.find('*');
  if (star == std::string_view::npos) return text == pattern;
  if (!text.starts_with(pattern.substr(0, star))) return false;
  text.remove_prefix(star);
  pattern.remove_prefix(star + 1);
  for (size_t size = 0; size <= text.size(); ++size) {
    stars.push_back(text.substr(0, size));
    if (match_from(text.substr(size), pattern, stars)) return true;
    stars.pop_back();
  }
  return false;
}
}  // namespace

bool matches(std::string_view text, std::string_view pattern) {
  std::vector<std::string_view> stars;
  return match_from(text, pattern, stars);
}

std::optional<std::string> substitute(std::string_view text, std::string_view from,
                                      std::string_view to) {
  std::vector<std::string_view> stars;
  if (!match_from(text, from, stars)) return std::nullopt;
  std::string result;
  size_t next = 0;
  for (const char each : to)
    if (each == '*' && next < stars.size())
      result += stars[next++];
    else
      result += each;
  return result;
}

}  // namespace weft
