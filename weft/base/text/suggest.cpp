#include "weft/base/text/suggest.h"

#include <algorithm>
#include <cctype>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "weft/base/text/lower.h"
#include "weft/base/text/pattern.h"
#include "weft/base/text/utf8.h"

namespace weft {
namespace {
// Returns the lower case of a letter of ASCII, Latin-1, Latin Extended-A, Greek or Cyrillic.
char32_t lower_of(char32_t code) {
  const auto within = [&](char32_t first, char32_t last) { return code >= first && code <= last; };
  if (within('A', 'Z') || (within(0xc0, 0xde) && code != 0xd7)) return code + 0x20;
  if (within(0x391, 0x3a9) || within(0x410, 0x42f)) return code + 0x20;
  if (within(0x400, 0x40f)) return code + 0x50;
  const bool even_is_upper = within(0x100, 0x137) || within(0x14a, 0x177);
  const bool odd_is_upper = within(0x139, 0x148) || within(0x179, 0x17e);
  if ((even_is_upper && code % 2 == 0) || (odd_is_upper && code % 2 == 1)) return code + 1;
  return code;
}

// Returns the code points of a text. A byte that is not UTF-8 becomes a code point above all of
// Unicode's.
std::u32string code_points(std::string_view text) {
  std::u32string codes;
  for (size_t at = 0; at < text.size();) {
    const std::optional<char32_t> code = next_utf8(text, at);
    codes += code ? *code : 0x110000 + static_cast<unsigned char>(text[at++]);
  }
  return codes;
}

std::u32string in_lower_case(std::u32string codes) {
  std::ranges::transform(codes, codes.begin(), lower_of);
  return codes;
}

// Counts the insertions, deletions, substitutions and transpositions that turn `a` into `b`.
size_t distance(std::u32string_view a, std::u32string_view b) {
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
  const std::u32string codes = code_points(word), lowered = in_lower_case(codes);
  most = std::min(most, (codes.size() + 1) / 2);
  std::string_view found;
  std::pair best{most + 1, size_t{0}};  // edits without regard to case, then with regard to case
  for (std::string_view candidate : known) {
    const std::u32string there = code_points(candidate);
    const auto [shorter, longer] = std::minmax({codes.size(), there.size()});
    if (longer - shorter > best.first) continue;  // a lower bound of the distance
    const size_t edits = distance(lowered, in_lower_case(there));
    if (edits > best.first) continue;
    if (const std::pair here{edits, distance(codes, there)}; here < best) {
      best = here;
      found = candidate;
    }
  }
  return found;
}

std::string did_you_mean(std::string_view pattern, std::span<const std::string_view> names) {
  const auto is_alike = [&, low = lower(std::string(pattern))](std::string_view name) {
    return matches(lower(std::string(name)), low);
  };
  const auto found = std::ranges::find_if(names, is_alike);
  const std::string_view name = found != names.end() ? *found : nearest(pattern, names);
  return name.empty() ? "" : " Did you mean '" + escaped(name) + "'?";
}
std::string did_you_mean(std::string_view pattern, const std::vector<std::string>& names) {
  return did_you_mean(pattern, std::vector<std::string_view>(names.begin(), names.end()));
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
