// Writes values as text: str() and repr() of Python, and JSON.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "weft/data/chat_template/context.h"

namespace weft::data::chat_template {

// Return the text of a value as Python's str() and repr() do; an undefined value is empty text.
std::string str(Context& context, const Value& value);
std::string repr(Context& context, const Value& value);
std::string float_text(double number);

// JsonStyle has the arguments of Python's json.dumps.
struct JsonStyle {
  std::optional<std::string> indent;  // indent per level of nesting; absent: one line
  std::string between_items = ", ";
  std::string after_key = ": ";
  bool sort_keys = false;
  bool ascii = false;  // escapes characters beyond ASCII
};
std::string json(Context& context, const Value& value, const JsonStyle& style);

}  // namespace weft::data::chat_template
