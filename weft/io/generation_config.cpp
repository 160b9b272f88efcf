#include "weft/io/generation_config.h"

#include <nlohmann/json.hpp>

#include "weft/base/error.h"
#include "weft/io/json.h"

namespace weft::io {
namespace {
constexpr size_t file_limit = size_t{1} << 20;  // bytes

// Reads a value by `read`, one of json.h; nullopt for an absent key or null.
template <class Value>
void take(const nlohmann::json& object, const char* key,
          Value (*read)(const nlohmann::json&, const char*), std::optional<Value>& into) {
  const auto found = object.find(key);
  if (found != object.end() && !found->is_null()) into = read(object, key);
}

// Returns one token or a list of them.
std::vector<int64_t> tokens_at(const nlohmann::json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) return {};
  if (!found->is_array()) return {integer_at(object, key)};
  std::vector<int64_t> tokens;
  for (const nlohmann::json& token : *found) tokens.push_back(integer_at({{key, token}}, key));
  return tokens;
}
}  // namespace

GenerationConfig parse_generation_config(std::string_view text, const std::string& file) {
  try {
    const nlohmann::json object = parse_json(text);
    if (!object.is_object()) throw JsonError("must be an object");
    GenerationConfig config;
    config.eos_token_id = tokens_at(object, "eos_token_id");
    take(object, "bos_token_id", integer_at, config.bos_token_id);
    take(object, "pad_token_id", integer_at, config.pad_token_id);
    take(object, "max_new_tokens", integer_at, config.max_new_tokens);
    take(object, "max_length", integer_at, config.max_length);
    take(object, "do_sample", truth_at, config.do_sample);
    take(object, "temperature", number_at, config.temperature);
    take(object, "top_k", integer_at, config.top_k);
    take(object, "top_p", number_at, config.top_p);
    take(object, "min_p", number_at, config.min_p);
    take(object, "repetition_penalty", number_at, config.repetition_penalty);
    config.file = file;
    return config;
  } catch (const JsonError& error) {
    throw Error(ErrorKind::data, "{}: {}.", file, error.what());
  }
}

GenerationConfig read_generation_config(const ModelFiles& model) {
  std::string name = "generation_config.json";
  std::optional<std::string> text = read_of_model(model, name, file_limit);
  if (!text) text = read_of_model(model, name = "config.json", file_limit);
  return parse_generation_config(text.value_or("{}"), file_in_messages(model, name));
}

}  // namespace weft::io
