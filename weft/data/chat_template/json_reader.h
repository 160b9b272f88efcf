// Makes values of JSON.
#pragma once

#include <cstddef>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "weft/data/chat_template/value.h"

namespace weft::data::chat_template {

// JsonReader counts the bytes of the values that it makes.
class JsonReader {
 public:
  // Throws Failure for integers that are no int64, and for values that are nested too deep.
  Value value(const nlohmann::ordered_json& json, int depth = 0);
  Value text(std::string_view bytes);
  size_t bytes() const { return bytes_; }

 private:
  Value list(const nlohmann::ordered_json& json, int depth);
  Value mapping(const nlohmann::ordered_json& json, int depth);

  size_t bytes_ = 0;
};

}  // namespace weft::data::chat_template
