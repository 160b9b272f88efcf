// JSON as text. Parser and writer of nlohmann's library are templates, which every file that calls
// them would compile again; files that call these only build and read values.
#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

namespace weft::io {

// On one line, or `indent` spaces deeper with each level. What is not UTF-8 becomes U+FFFD.
std::string json_text(const nlohmann::json& value, int indent = -1);
std::string json_text(const nlohmann::ordered_json& value, int indent = -1);

// Throws nlohmann::json::exception.
nlohmann::json parse_json(std::string_view text);
// Discarded (which is no object, nor anything else) where the text is not JSON.
nlohmann::json parse_json_or_discard(std::string_view text);

}  // namespace weft::io
