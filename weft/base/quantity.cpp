#include "weft/base/quantity.h"

#include <charconv>

namespace weft {

std::optional<int64_t> parse_count(std::string_view text, std::string_view unit) {
  if (!unit.empty() && text.ends_with(unit)) text.remove_suffix(unit.size());
  int64_t value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  if (text.empty()) return value;
  size_t power = std::string_view("KMGT").find(text.front());
  bool binary = text.substr(1) == "i";
  if (power == std::string_view::npos || (text.size() > 1 && !binary)) return std::nullopt;
  for (size_t i = 0; i <= power; ++i)
    if (__builtin_mul_overflow(value, binary ? 1024 : 1000, &value)) return std::nullopt;
  return value;
}

}  // namespace weft
