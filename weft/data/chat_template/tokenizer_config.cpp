#include "weft/data/chat_template/tokenizer_config.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "weft/base/error.h"
#include "weft/data/tokenizer/part.h"
#include "weft/io/files.h"
#include "weft/io/json.h"

namespace weft::data {

using tokenizer::Part;

namespace {

constexpr size_t most_file_bytes = size_t{64} << 20;  // added tokens are listed there, too
constexpr std::string_view default_name = "default";
constexpr std::string_view tools_name = "tool_use";
constexpr std::string_view token_names[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                            "pad_token", "cls_token", "mask_token"};

// Calls `use` with the contents of a file of JSON, if there is one.
template <class Use>
void read_json(const std::string& path, Use&& use) {
  if (!io::exists(path)) return;
  const std::string contents = io::read_file(path, most_file_bytes);
  nlohmann::json json;
  try {
    json = io::parse_json(contents);
  } catch (const io::JsonError& error) {
    throw Error(ErrorKind::data, "[tokenizer] {}: {}.", path, error.what());
  }
  use(Part(json, path, contents.size()));
}

// Adds the special tokens that are not known yet: texts, or objects with their "content".
void read_special_tokens(const Part& file, SpecialTokens& tokens) {
  for (std::string_view name : token_names) {
    const auto part = file.find(name);
    if (!part || std::ranges::find(tokens, name, &SpecialTokens::value_type::first) != tokens.end())
      continue;
    tokens.emplace_back(name,
                        part->value().is_object() ? part->at("content").text() : part->text());
  }
}

void read_templates(const Part& part, std::map<std::string, TokenizerConfig::Template>& templates) {
  if (part.value().is_string()) {
    templates[std::string(default_name)] = {part.text(), part.file() + ":chat_template"};
    return;
  }
  if (!part.value().is_array()) part.must("must be text, or a list of templates with names");
  part.for_each([&](const Part& one) {
    const std::string& name = one.at("name").text();
    templates[name] = {one.at("template").text(), part.file() + ":chat_template." + name};
  });
}

// Files without a limit have 1e30 there.
std::optional<int64_t> read_length(const Part& part) {
  constexpr double most = 1e15;
  if (part.value().is_number() && part.number() > most) return std::nullopt;
  return part.integer(1, static_cast<int64_t>(most));
}

}  // namespace

TokenizerConfig TokenizerConfig::load(const std::string& folder) {
  TokenizerConfig config;
  read_json(folder + "/tokenizer_config.json", [&](const Part& file) {
    read_special_tokens(file, config.special_tokens);
    if (const auto part = file.find("chat_template")) read_templates(*part, config.chat_templates);
    if (const auto part = file.find("add_bos_token")) config.add_bos_token = part->truth();
    if (const auto part = file.find("add_eos_token")) config.add_eos_token = part->truth();
    if (const auto part = file.find("model_max_length"))
      config.model_max_length = read_length(*part);
  });
  read_json(folder + "/special_tokens_map.json",
            [&](const Part& file) { read_special_tokens(file, config.special_tokens); });
  if (const std::string path = folder + "/chat_template.jinja"; io::exists(path))
    config.chat_templates[std::string(default_name)] = {io::read_file(path, most_file_bytes), path};
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

}  // namespace weft::data
