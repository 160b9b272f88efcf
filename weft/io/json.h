// JSON as text, and the values that a file must have. Parser, writer and conversions of nlohmann's
// library are templates, which every file that calls them would compile again, and what it throws
// speaks of its own types.
#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

namespace weft::io {

// On one line, or `indent` spaces deeper with each level. What is not UTF-8 becomes U+FFFD.
std::string json_text(const nlohmann::json& value, int indent = -1);
std::string json_text(const nlohmann::ordered_json& value, int indent = -1);

// What is wrong with a text or with a value, in words that follow the name of its file:
// "step must be a whole number. Got \"x\"", without a full stop; printable.
struct JsonError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Throws JsonError, which has the line and the column.
nlohmann::json parse_json(std::string_view text);
// Discarded (which is no object, nor anything else) where the text is not JSON.
nlohmann::json parse_json_or_discard(std::string_view text);

// The value under a key. Each throws JsonError where there is none, where it is of another kind, or
// where `object` is no object.
const nlohmann::json& value_at(const nlohmann::json& object, const char* key);
const nlohmann::json& object_at(const nlohmann::json& object, const char* key);
int64_t integer_at(const nlohmann::json& object, const char* key);
double number_at(const nlohmann::json& object, const char* key);
std::optional<double> number_or_null_at(const nlohmann::json& object, const char* key);
std::string text_at(const nlohmann::json& object, const char* key);
bool truth_at(const nlohmann::json& object, const char* key);

}  // namespace weft::io
