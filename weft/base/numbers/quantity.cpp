#include "weft/base/numbers/quantity.h"

#include <charconv>
#include <cmath>
#include <iterator>
#include <string>

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

std::optional<double> parse_number(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value))
    return std::nullopt;
  return value;
}

std::optional<int64_t> parse_bytes(std::string_view text) {
  double value = 0;
  auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed);
  if (error != std::errc()) return std::nullopt;
  const char* last = text.data() + text.size();
  if (last - end > 1 && *end == ' ') ++end;  // weft prints sizes with a space
  auto unit = parse_count("1" + std::string(end, last), "B");
  if (!unit) return std::nullopt;
  value *= static_cast<double>(*unit);
  if (!(value >= 0 && value < 0x1p62)) return std::nullopt;
  return static_cast<int64_t>(value);
}

ScaledBytes scaled(double bytes) {
  constexpr std::string_view units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  for (; bytes >= 1024 && unit + 1 < std::size(units); ++unit) bytes /= 1024;
  return {bytes, units[unit]};
}

}  // namespace weft
