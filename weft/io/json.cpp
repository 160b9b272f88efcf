#include "weft/io/json.h"

#include <nlohmann/json.hpp>

namespace weft::io {

std::string json_text(const nlohmann::json& value, int indent) { return value.dump(indent); }
std::string json_text(const nlohmann::ordered_json& value, int indent) {
  return value.dump(indent);
}

nlohmann::json parse_json(std::string_view text) { return nlohmann::json::parse(text); }
nlohmann::json parse_json_or_discard(std::string_view text) {
  return nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
}

}  // namespace weft::io
