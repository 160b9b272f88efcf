#include "weft/models/config_json.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "weft/base/error.h"
#include "weft/io/json.h"

namespace weft::models {
namespace {
using nlohmann::json;

nn::Options nested(const json& value, const std::string& name, int depth);

bool fits_int64(const json& value) {
  return value.is_number_integer() &&
         !(value.is_number_unsigned() && value.get<uint64_t>() > uint64_t{INT64_MAX});
}

nn::Option list_of(const json& value) {
  const auto all = [&](auto is) { return std::ranges::all_of(value, is); };
  if (all(fits_int64)) return value.get<std::vector<int64_t>>();
  if (all([](const json& entry) { return entry.is_number(); }))
    return value.get<std::vector<double>>();
  if (all([](const json& entry) { return entry.is_string(); }))
    return value.get<std::vector<std::string>>();
  return io::json_text(value);
}

nn::Option option_of(const json& value, const std::string& name, int depth) {
  switch (value.type()) {
    case json::value_t::boolean:
      return value.get<bool>();
    case json::value_t::number_integer:
    case json::value_t::number_unsigned:
      if (fits_int64(value)) return value.get<int64_t>();
      return value.get<double>();
    case json::value_t::number_float:
      return value.get<double>();
    case json::value_t::string:
      return value.get<std::string>();
    case json::value_t::array:
      return list_of(value);
    case json::value_t::object:
      return nn::NestedOptions(nested(value, name, depth + 1));
    default:
      return std::monostate();
  }
}

nn::Options nested(const json& value, const std::string& name, int depth) {
  if (!value.is_object()) throw Error(ErrorKind::data, "{}: it must hold one JSON object.", name);
  if (depth > deepest_options)
    throw Error(ErrorKind::data, "{}: objects are nested deeper than {}.", name, deepest_options);
  nn::Options options;
  for (const auto& [key, entry] : value.items()) options.set(key, option_of(entry, name, depth));
  return options;
}

struct Writer {
  json operator()(std::monostate) const { return nullptr; }
  json operator()(const nn::NestedOptions& value) const { return json_of(*value); }
  template <class T>
  json operator()(const T& value) const {
    return value;
  }
};
}  // namespace

nn::Options options_of(const json& value, const std::string& name) {
  return nested(value, name, 1);
}

nn::Options parse_options(std::string_view text, const std::string& name) {
  try {
    return options_of(io::parse_json(text), name);
  } catch (const io::JsonError& error) {
    throw Error(ErrorKind::data, "{}: {}.", name, error.what());
  }
}

json json_of(const nn::Options& options) {
  json result = json::object();
  for (const auto& [key, option] : options.entries()) result[key] = std::visit(Writer(), option);
  return result;
}

std::string json_text(const nn::Options& options) {
  return io::json_text(json_of(options), 2) + "\n";
}

}  // namespace weft::models
