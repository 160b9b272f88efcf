// Reads and writes JSON as text, and reads the values that a file must have. These functions wrap
// nlohmann's templates, which every caller would compile again, and its exceptions, which speak of
// its own types.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "weft/base/error.h"

namespace weft::io {

// Returns JSON on one line, or `indent` spaces deeper per level. Bytes not UTF-8 become U+FFFD.
std::string json_text(const nlohmann::json& value, int indent = -1);
std::string json_text(const nlohmann::ordered_json& value, int indent = -1);

// JsonError says what is wrong with a text or a value, in words that follow the name of its file:
// "step must be a whole number. Got \"x\"", without a full stop; printable.
struct JsonError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Parses JSON; throws JsonError with the line and the column, and for values nested deeper than
// deepest_json, because copies of a value recurse.
inline constexpr int deepest_json = 500;
nlohmann::json parse_json(std::string_view text);
// Does the same for one line of a file; JsonError has the column alone.
nlohmann::json parse_json_line(std::string_view text);
// Does the same, and keeps the order of keys. An integer beyond 64 bits becomes a binary value of
// its digits instead of a float, so that readers can refuse it.
nlohmann::ordered_json parse_ordered_json_line(std::string_view text);
// Reads and parses a file of at most `limit` bytes; every error is an Error of `kind`, one line
// that names the file.
nlohmann::json read_json_file(const std::string& path, size_t limit,
                              ErrorKind kind = ErrorKind::data);
// Parses JSON; returns a discarded value, for which every is_...() but is_discarded() is false, if
// the text is not JSON or nests too deep.
nlohmann::json parse_json_or_discard(std::string_view text);

// Return the value under a key. Each throws JsonError if there is none, if it is of another kind,
// or if `object` is no object.
const nlohmann::json& value_at(const nlohmann::json& object, const char* key);
const nlohmann::json& object_at(const nlohmann::json& object, const char* key);
int64_t integer_at(const nlohmann::json& object, const char* key);
double number_at(const nlohmann::json& object, const char* key);
std::optional<double> number_or_null_at(const nlohmann::json& object, const char* key);
std::string text_at(const nlohmann::json& object, const char* key);
std::vector<std::string> texts_at(const nlohmann::json& object, const char* key);
bool truth_at(const nlohmann::json& object, const char* key);

}  // namespace weft::io
