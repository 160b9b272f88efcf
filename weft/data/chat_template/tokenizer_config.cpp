#include "weft/data/chat_template/tokenizer_config.h"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "weft/base/error.h"
#include "weft/data/tokenizer/tokenizer.h"
#include "weft/io/files.h"
#include "weft/io/json.h"

namespace weft::data {

namespace {

using nlohmann::json;

constexpr size_t most_file_bytes = size_t{64} << 20;  // the file also lists all added tokens
constexpr std::string_view default_name = "default";
constexpr std::string_view tools_name = "tool_use";
constexpr std::string_view token_names[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                            "pad_token", "cls_token", "mask_token"};

// A Place is a value of a file with its path in the file, which errors name. It is not a
// tokenizer::Part, because simdjson refuses integers beyond 64 bits, by which files say that a
// length has no limit.
struct Place {
  const json& value;
  const std::string& file;
  std::string path = {};

  [[noreturn]] void fail(std::string_view text) const {
    throw Error(ErrorKind::data, "[tokenizer] {}: {} {}.", file,
                path.empty() ? "the file" : io::printable(path), text);
  }
  [[noreturn]] void must(std::string_view rule) const {
    const std::string got = value.is_object()  ? "an object"
                            : value.is_array() ? fmt::format("a list of {}", value.size())
                                               : io::printable(io::json_text(value));
    fail(fmt::format("{}. Got {}", rule, got));
  }
  // Returns the value under a key; nullopt where it is missing or null.
  std::optional<Place> find(std::string_view key) const {
    if (!value.is_object()) must("must be an object");
    const auto found = value.find(key);
    if (found == value.end() || found->is_null()) return std::nullopt;
    return Place{*found, file, path.empty() ? std::string(key) : fmt::format("{}.{}", path, key)};
  }
  Place at(std::string_view key) const {
    const auto found = find(key);
    if (!found) fail(fmt::format("has no '{}'", key));
    return *found;
  }
  const std::string& text() const {
    if (!value.is_string()) must("must be text");
    return value.get_ref<const std::string&>();
  }
  bool truth() const {
    if (!value.is_boolean()) must("must be true or false");
    return value.get<bool>();
  }
};

// Calls `use` with the contents of a model's file of JSON, if there is one.
template <class Use>
void read_json(const io::ModelFiles& model, const std::string& name, Use&& use) {
  const std::optional<std::string> text = io::read_of_model(model, name, most_file_bytes);
  if (!text) return;
  const std::string path = io::file_in_messages(model, name);
  json contents;
  try {
    contents = io::parse_json(*text);
  } catch (const io::JsonError& error) {
    throw Error(ErrorKind::data, "[tokenizer] {}: {}.", path, error.what());
  }
  use(Place{contents, path});
}

// Adds the special tokens that are not known yet: texts, or objects with their "content".
void read_special_tokens(const Place& file, SpecialTokens& tokens) {
  for (std::string_view name : token_names) {
    const auto place = file.find(name);
    if (!place ||
        std::ranges::find(tokens, name, &SpecialTokens::value_type::first) != tokens.end())
      continue;
    tokens.emplace_back(name,
                        place->value.is_object() ? place->at("content").text() : place->text());
  }
}

void read_templates(const Place& place,
                    std::map<std::string, TokenizerConfig::Template>& templates) {
  if (place.value.is_string()) {
    templates[std::string(default_name)] = {place.text(), place.file + ":chat_template"};
    return;
  }
  if (!place.value.is_array()) place.must("must be text, or a list of templates with names");
  for (size_t i = 0; i < place.value.size(); ++i) {
    const Place one{place.value[i], place.file, fmt::format("{}[{}]", place.path, i)};
    const std::string& name = one.at("name").text();
    templates[name] = {one.at("template").text(), place.file + ":chat_template." + name};
  }
}

// Returns nullopt for a length above 1e15: transformers writes 1e30 for "no limit".
std::optional<int64_t> read_length(const Place& place) {
  constexpr int64_t most = 1'000'000'000'000'000;
  const json& value = place.value;
  if (value.is_number() && value.get<double>() > static_cast<double>(most)) return std::nullopt;
  if (!value.is_number_integer() || value.get<int64_t>() < 1)
    place.must(fmt::format("must be a whole number from 1 to {}", most));
  return value.get<int64_t>();
}

}  // namespace

TokenizerConfig TokenizerConfig::load(const io::ModelFiles& model) {
  TokenizerConfig config;
  read_json(model, "tokenizer_config.json", [&](const Place& file) {
    read_special_tokens(file, config.special_tokens);
    if (const auto place = file.find("chat_template"))
      read_templates(*place, config.chat_templates);
    if (const auto place = file.find("add_bos_token")) config.add_bos_token = place->truth();
    if (const auto place = file.find("add_eos_token")) config.add_eos_token = place->truth();
    if (const auto place = file.find("model_max_length"))
      config.model_max_length = read_length(*place);
  });
  read_json(model, "special_tokens_map.json",
            [&](const Place& file) { read_special_tokens(file, config.special_tokens); });
  const std::string jinja = "chat_template.jinja";
  if (auto text = io::read_of_model(model, jinja, most_file_bytes))
    config.chat_templates[std::string(default_name)] = {*std::move(text), model.path + "/" + jinja};
  return config;
}

std::optional<ChatTemplate> TokenizerConfig::chat_template(bool with_tools) const {
  auto found = with_tools ? chat_templates.find(std::string(tools_name)) : chat_templates.end();
  if (found == chat_templates.end()) found = chat_templates.find(std::string(default_name));
  if (found == chat_templates.end()) return std::nullopt;
  return ChatTemplate(found->second.text, special_tokens, found->second.source);
}

std::optional<std::string> TokenizerConfig::special_token(std::string_view name) const {
  const auto found = std::ranges::find(special_tokens, name, &SpecialTokens::value_type::first);
  return found == special_tokens.end() ? std::nullopt : std::optional(found->second);
}

int64_t special_token_id(const Tokenizer& tokenizer, const std::string& from, std::string_view key,
                         std::initializer_list<std::string_view> usual, std::string_view needs) {
  if (io::is_folder(from))
    if (const auto given = TokenizerConfig::load(from).special_token(key))
      if (const auto id = tokenizer.id_of(*given)) return *id;
  for (const std::string_view token : usual)
    if (const auto id = tokenizer.id_of(std::string(token))) return *id;
  throw Error(ErrorKind::data,
              "{}: the tokenizer has no {}, which {}. Hint: {} in tokenizer_config.json names it.",
              io::printable(from), key, needs, key);
}

}  // namespace weft::data
