#include "weft/data/chat_template/json_reader.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "weft/data/tokenizer/unicode.h"

namespace weft::data::chat_template {

using Json = nlohmann::ordered_json;

namespace {
[[noreturn]] void fail_range(const auto& number) {
  fail("{} is no integer from {} to {}", number, INT64_MIN, INT64_MAX);
}
}  // namespace

Value JsonReader::value(const Json& json, int depth) {
  if (depth > most_nested_values) fail("values are nested deeper than {}", most_nested_values);
  bytes_ += sizeof(Value);
  switch (json.type()) {
    case Json::value_t::boolean:
      return json.get<bool>();
    case Json::value_t::number_integer:
      return json.get<int64_t>();
    case Json::value_t::number_unsigned:
      if (json.get<uint64_t>() > INT64_MAX) fail_range(json.get<uint64_t>());
      return json.get<int64_t>();
    case Json::value_t::number_float:
      return json.get<double>();
    case Json::value_t::string:
      return text(json.get_ref<const std::string&>());
    case Json::value_t::array:
      return list(json, depth);
    case Json::value_t::object:
      return mapping(json, depth);
    case Json::value_t::binary:  // io::parse_ordered_json_line()
      fail_range(std::string_view(reinterpret_cast<const char*>(json.get_binary().data()),
                                  std::min<size_t>(json.get_binary().size(), 40)));
    default:
      return None{};
  }
}

Value JsonReader::text(std::string_view bytes) {
  bytes_ += bytes.size();
  return std::make_shared<const std::string>(tokenizer::valid_utf8(bytes));
}

Value JsonReader::list(const Json& json, int depth) {
  Sequence sequence;
  for (const Json& item : json) {
    sequence.items.push_back(value(item, depth + 1));
    sequence.depth = std::max(sequence.depth, 1 + depth_of(sequence.items.back()));
  }
  return std::make_shared<const Sequence>(std::move(sequence));
}

Value JsonReader::mapping(const Json& json, int depth) {
  Mapping mapping;
  for (const auto& [key, item] : json.items()) {
    mapping.entries.emplace_back(text(key), value(item, depth + 1));
    mapping.depth = std::max(mapping.depth, 1 + depth_of(mapping.entries.back().second));
  }
  return std::make_shared<const Mapping>(std::move(mapping));
}

}  // namespace weft::data::chat_template
