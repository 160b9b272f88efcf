#include "weft/train/catalogue/field_reader.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "weft/base/error.h"
#include "weft/base/text/suggest.h"
#include "weft/base/text/utf8.h"

namespace weft::train {
namespace {
template <class Number>
std::optional<Number> parsed(const std::string& text) {
  Number value = 0;
  const char* const end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || at != end) return std::nullopt;
  return value;
}

// "2026", "2026-08" or "2026-08-19".
bool is_date(std::string_view text) {
  if (text.size() != 4 && text.size() != 7 && text.size() != 10) return false;
  for (size_t i = 0; i < text.size(); ++i)
    if (i == 4 || i == 7 ? text[i] != '-' : text[i] < '0' || text[i] > '9') return false;
  const auto part = [&](size_t at) { return 10 * (text[at] - '0') + text[at + 1] - '0'; };
  return part(0) >= 19 && part(0) <= 21 && (text.size() < 7 || (part(5) >= 1 && part(5) <= 12)) &&
         (text.size() < 10 || (part(8) >= 1 && part(8) <= 31));
}
}  // namespace

bool is_null(const YAML::Node& node) {
  return node.IsNull() || (node.IsScalar() && node.Tag() != "!" &&
                           (node.Scalar() == "null" || node.Scalar() == "~"));
}

void FieldReader::wrong(const YAML::Node& node, std::string_view field,
                        const std::string& rule) const {
  throw Error(ErrorKind::usage, "{}: {}{} {}", origin_.at(node), place(), printable(field), rule);
}

std::string FieldReader::place() const {
  return device_.empty() ? "" : fmt::format("{}: ", printable(device_));
}

void FieldReader::each(const YAML::Node& map, std::string_view field,
                       std::span<const std::string_view> keys, const TakeEntry& take) const {
  if (!map.IsMap()) wrong(map, field, fmt::format("must be a map. Got {}.", shown(map)));
  if (map.size() == 0) wrong(map, field, "is empty. Hint: null says that nothing is known.");
  const std::string dotted = field.empty() ? "" : fmt::format("{}.", field);
  refuse_duplicates(origin_, map, place() + dotted);
  for (const auto& entry : map) {
    if (!entry.first.IsScalar()) wrong(entry.first, field, "has a key that is not a word.");
    const std::string& key = entry.first.Scalar();
    if (std::ranges::find(keys, key) == keys.end()) {
      const std::string_view similar = nearest(key, keys);
      wrong(entry.first, dotted + key,
            similar.empty() ? fmt::format("is no field. Known: {}.", fmt::join(keys, ", "))
                            : fmt::format("is no field. Did you mean {}?", similar));
    }
    take(key, entry.second);
  }
}

void FieldReader::list(const YAML::Node& node, std::string_view field,
                       const std::function<void(const YAML::Node&)>& take) const {
  constexpr size_t longest = 200;
  if (!node.IsSequence()) wrong(node, field, fmt::format("must be a list. Got {}.", shown(node)));
  if (node.size() > longest) wrong(node, field, fmt::format("has at most {} entries.", longest));
  for (const YAML::Node& entry : node) take(entry);
}

std::string_view FieldReader::text(const YAML::Node& node, std::string_view field,
                                   size_t longest) const {
  if (!node.IsScalar() || node.Scalar().empty() || is_null(node))
    wrong(node, field, fmt::format("must be a text. Got {}.", shown(node)));
  const std::string& value = node.Scalar();
  if (value.size() > longest)
    wrong(node, field, fmt::format("has at most {} bytes. Got {}.", longest, value.size()));
  if (escaped(value) != value)
    wrong(node, field, fmt::format("has control characters. Got {}.", shown(node)));
  return kept(value);
}

double FieldReader::number(const YAML::Node& node, std::string_view field, double low, double high,
                           std::string_view unit) const {
  const auto value = node.IsScalar() ? parsed<double>(node.Scalar()) : std::nullopt;
  if (!value || !std::isfinite(*value))
    wrong(node, field, fmt::format("must be a number. Got {}.", shown(node)));
  if (*value < low || *value > high)
    wrong(node, field,
          fmt::format("must be in {} .. {}{}. Got {}.{}", low, high,
                      unit.empty() ? "" : fmt::format(" ({})", unit), printable(node.Scalar()),
                      *value == 0 ? " Hint: leave out what is unknown." : ""));
  return *value;
}

bool FieldReader::flag(const YAML::Node& node, std::string_view field) const {
  if (!node.IsScalar() || (node.Scalar() != "true" && node.Scalar() != "false"))
    wrong(node, field, fmt::format("must be true or false. Got {}.", shown(node)));
  return node.Scalar() == "true";
}

std::string_view FieldReader::date(const YAML::Node& node, std::string_view field) const {
  const std::string_view value = text(node, field);
  if (!is_date(value))
    wrong(node, field, fmt::format("must be as 2026-08-19, 2026-08 or 2026. Got {}.", shown(node)));
  return value;
}

std::string_view FieldReader::id(const YAML::Node& node, std::string_view field) const {
  const std::string_view value = text(node, field, 40);
  const bool fine = std::ranges::all_of(value, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.';
  });
  if (!fine || value.find_first_of("abcdefghijklmnopqrstuvwxyz") == value.npos)
    wrong(node, field,
          fmt::format("must be lower-case letters, digits, '-' and '.'. Got {}.", shown(node)));
  if (value == "cpu" || value == "all" || value == "auto")
    wrong(node, field, fmt::format("must not be {}, which --on has a meaning for.", value));
  return value;
}

}  // namespace weft::train
