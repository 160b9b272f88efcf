#include "weft/io/json.h"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "weft/io/files.h"

namespace weft::io {

namespace {
// Writes U+FFFD for bytes that are not UTF-8: names of files may hold any byte.
template <class Json>
std::string text_of(const Json& value, int indent) {
  return value.dump(indent, ' ', false, Json::error_handler_t::replace);
}
}  // namespace

std::string json_text(const nlohmann::json& value, int indent) { return text_of(value, indent); }
std::string json_text(const nlohmann::ordered_json& value, int indent) {
  return text_of(value, indent);
}

namespace {
// Returns the byte at which lists and objects nest too deep; nullopt if they never do. Brackets
// within strings do not count.
std::optional<size_t> too_deep_at(std::string_view text) {
  int depth = 0;
  bool in_string = false;
  for (size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (in_string && c == '\\')
      ++at;
    else if (c == '"')
      in_string = !in_string;
    else if (!in_string && (c == '[' || c == '{') && ++depth > deepest_json)
      return at;
    else if (!in_string && (c == ']' || c == '}'))
      --depth;
  }
  return std::nullopt;
}

// Returns an entry for each number of a JSON text that the parser makes a float, in order: the
// digits of an integer beyond 64 bits, "" for any other.
std::vector<std::string> floats_of(std::string_view text) {
  const auto part_of_number = [](char c) {
    return (c >= '0' && c <= '9') || std::string_view("-+.eE").find(c) != std::string_view::npos;
  };
  std::vector<std::string> found;
  bool in_string = false;
  for (size_t at = 0; at < text.size(); ++at) {
    if (text[at] == '"') in_string = !in_string;
    if (in_string && text[at] == '\\') ++at;
    if (in_string || !(text[at] == '-' || (text[at] >= '0' && text[at] <= '9'))) continue;
    const size_t begin = at;
    while (at + 1 < text.size() && part_of_number(text[at + 1])) ++at;
    const std::string_view number = text.substr(begin, at + 1 - begin);
    const char* const first = text.data() + begin;
    const auto is_out_of_range = [&](auto as) {
      return std::from_chars(first, first + number.size(), as).ec == std::errc::result_out_of_range;
    };
    if (number.find_first_of(".eE") != std::string_view::npos)
      found.emplace_back();
    else if (number[0] == '-' ? is_out_of_range(int64_t{0}) : is_out_of_range(uint64_t{0}))
      found.emplace_back(number);
  }
  return found;
}

template <class Json = nlohmann::json>
Json parse(std::string_view text, bool is_line) {
  if (const std::optional<size_t> at = too_deep_at(text))
    throw JsonError(
        fmt::format("lists and objects nest deeper than {} at byte {}", deepest_json, *at));
  try {
    return Json::parse(text);
  } catch (const typename Json::parse_error& error) {  // `byte` counts from 1
    const std::string_view before = text.substr(0, error.byte == 0 ? 0 : error.byte - 1);
    const size_t newline = before.rfind('\n');
    const auto lines = std::ranges::count(before, '\n');
    throw JsonError(fmt::format(
        "not JSON: {} at {}column {}",
        error.byte > text.size() ? "it ends too early," : "there is a mistake",
        is_line ? "" : fmt::format("line {}, ", 1 + lines),
        newline == std::string_view::npos ? before.size() + 1 : before.size() - newline));
  } catch (const typename Json::exception&) {
    throw JsonError("not JSON: it has a number that is too large");
  }
}
}  // namespace

nlohmann::json parse_json(std::string_view text) { return parse(text, /*is_line=*/false); }
nlohmann::json parse_json_line(std::string_view text) { return parse(text, /*is_line=*/true); }
nlohmann::ordered_json parse_ordered_json_line(std::string_view text) {
  using Json = nlohmann::ordered_json;
  const std::vector<std::string> floats = floats_of(text);
  auto parsed = parse<Json>(text, /*is_line=*/true);
  if (std::ranges::all_of(floats, &std::string::empty)) return parsed;
  size_t next = 0;
  return Json::parse(text, [&](int, Json::parse_event_t event, Json& value) {
    if (event == Json::parse_event_t::value && value.is_number_float())
      if (const std::string& digits = floats[next++]; !digits.empty())
        value = Json::binary({digits.begin(), digits.end()});
    return true;
  });
}

nlohmann::json read_json_file(const std::string& path, size_t limit, ErrorKind kind) {
  const std::string text = read_file(path, limit, kind);
  try {
    return parse_json(text);
  } catch (const JsonError& error) {
    throw Error(kind, "{}: {}.", path, error.what());
  }
}

nlohmann::json parse_json_or_discard(std::string_view text) {
  if (too_deep_at(text)) return nlohmann::json(nlohmann::json::value_t::discarded);
  return nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
}

namespace {
[[noreturn]] void refuse(std::string_view name, std::string_view rule, const nlohmann::json& got) {
  throw JsonError(fmt::format("{}{}must be {}. Got {}", name, name.empty() ? "" : " ", rule,
                              printable(json_text(got))));
}
}  // namespace

const nlohmann::json& value_at(const nlohmann::json& object, const char* key) {
  if (!object.is_object()) refuse("", "an object", object);
  const auto found = object.find(key);
  if (found == object.end()) throw JsonError(fmt::format("{} is missing", key));
  return *found;
}

const nlohmann::json& object_at(const nlohmann::json& object, const char* key) {
  const nlohmann::json& value = value_at(object, key);
  if (!value.is_object()) refuse(key, "an object", value);
  return value;
}

int64_t integer_at(const nlohmann::json& object, const char* key) {
  const nlohmann::json& value = value_at(object, key);
  const auto* unsigned_value = value.get_ptr<const nlohmann::json::number_unsigned_t*>();
  if (!value.is_number_integer() || (unsigned_value != nullptr && *unsigned_value > INT64_MAX))
    refuse(key, "a whole number", value);
  return value.get<int64_t>();
}

std::optional<double> number_or_null_at(const nlohmann::json& object, const char* key) {
  const nlohmann::json& value = value_at(object, key);
  if (value.is_null()) return std::nullopt;
  if (!value.is_number()) refuse(key, "a number", value);
  return value.get<double>();
}

double number_at(const nlohmann::json& object, const char* key) {
  const std::optional<double> number = number_or_null_at(object, key);
  if (!number) refuse(key, "a number", nullptr);
  return *number;
}

std::string text_at(const nlohmann::json& object, const char* key) {
  const nlohmann::json& value = value_at(object, key);
  if (!value.is_string()) refuse(key, "text", value);
  return value.get<std::string>();
}

std::vector<std::string> texts_at(const nlohmann::json& object, const char* key) {
  const nlohmann::json& value = value_at(object, key);
  if (!value.is_array() || !std::ranges::all_of(value, &nlohmann::json::is_string))
    refuse(key, "a list of texts", value);
  return value.get<std::vector<std::string>>();
}

bool truth_at(const nlohmann::json& object, const char* key) {
  const nlohmann::json& value = value_at(object, key);
  if (!value.is_boolean()) refuse(key, "true or false", value);
  return value.get<bool>();
}

}  // namespace weft::io
