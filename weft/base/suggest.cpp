#include "weft/base/suggest.h"

#include <algorithm>
#include <vector>

namespace weft {
namespace {
size_t distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0]++;
    for (size_t j = 1; j <= b.size(); ++j) {
      size_t next = std::min({row[j] + 1, row[j - 1] + 1, diagonal + (a[i - 1] != b[j - 1])});
      diagonal = row[j];
      row[j] = next;
    }
  }
  return row.back();
}
}  // namespace

std::string_view nearest(std::string_view word, std::span<const std::string_view> known,
                         size_t most) {
  std::string_view found;
  size_t best = most + 1;
  if (word.size() > 256) return found;
  for (std::string_view candidate : known)
    if (size_t d = distance(word, candidate); d < best && 2 * d <= word.size() + 1) {
      best = d;
      found = candidate;
    }
  return found;
}
}  // namespace weft
