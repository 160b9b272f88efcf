// Converts config.json to options, and back: the keys of a model, whatever its family.
#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "weft/nn/options.h"

namespace weft::models {

// Converts an object of JSON. Objects become nested options. Lists of whole numbers, of numbers and
// of texts keep their type; an empty list is one of whole numbers, and any other list becomes its
// JSON as text, as options have no other lists. `name` is the file's, for messages. Throws
// Error(data) if `value` is no object, and for objects nested deeper than deepest_options.
inline constexpr int deepest_options = 16;
nn::Options options_of(const nlohmann::json& value, const std::string& name);
// Parses the text of a config.json; Error(data) names the line that is not JSON.
nn::Options parse_options(std::string_view text, const std::string& name);

// Returns options as JSON, which options_of() converts back to the same options.
nlohmann::json json_of(const nn::Options& options);
std::string json_text(const nn::Options& options);  // text of a config.json, with a final newline

}  // namespace weft::models
