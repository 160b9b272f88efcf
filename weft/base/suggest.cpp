#include "weft/base/suggest.h"

#include <algorithm>
#include <cctype>
#include <numeric>
#include <utility>
#include <vector>

namespace weft {
namespace {
// Counts the insertions, deletions, substitutions and transpositions that turn `a` into `b`.
size_t distance(std::string_view a, std::string_view b) {
  std::vector<size_t> before, above, row(b.size() + 1);  // rows i - 2, i - 1, i
  std::iota(row.begin(), row.end(), 0);
  for (size_t i = 1; i <= a.size(); ++i) {
    before = std::exchange(above, row);
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], before[j - 2] + 1);
    }
  }
  return row.back();
}
}  // namespace

std::string_view nearest(std::string_view word, std::span<const std::string_view> known,
                         size_t most) {
  std::string_view found;
  size_t best = most + 1;
  for (std::string_view candidate : known) {
    const auto [shorter, longer] = std::minmax({word.size(), candidate.size()});
    if (longer - shorter >= best) continue;  // a lower bound of the distance
    if (size_t d = distance(word, candidate); d < best && 2 * d <= word.size() + 1) {
      best = d;
      found = candidate;
    }
  }
  return found;
}
std::string shell_word(std::string_view text) {
  const bool plain = !text.empty() && std::ranges::all_of(text, [](unsigned char c) {
    return std::isalnum(c) != 0 || c >= 0x80 ||
           std::string_view("/._-+").find(static_cast<char>(c)) != std::string_view::npos;
  });
  if (plain) return std::string(text);
  std::string word = "'";
  for (char c : text) word += c == '\'' ? "'\\''" : std::string(1, c);
  return word + "'";
}

}  // namespace weft
