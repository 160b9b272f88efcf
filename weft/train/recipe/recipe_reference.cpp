// Writes the pages that describe the keys of recipes: the JSON Schema and the reference.
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "weft/io/json.h"
#include "weft/train/recipe/recipe.h"

namespace weft::train {
namespace {
using enum KeyType;
constexpr std::string_view count_pattern = "[0-9]+([KMGT]i?)?";

std::string type_name(KeyType type) {
  constexpr std::string_view names[] = {
      "text",          "integer", "number", "true or false",  "list of numbers",
      "list of words", "size",    "map",    "list of layers", "list of transforms"};
  return std::string(names[static_cast<int>(type)]);
}

std::string json_type(KeyType type) {
  switch (type) {
    case text:
    case bytes:
      return "string";
    case integer:
      return "integer";
    case number:
      return "number";
    case boolean:
      return "boolean";
    case map:
      return "object";
    default:
      return "array";
  }
}

// Returns a regular expression for choices. The expression of train.device has "cuda:[0-9]+" for
// cuda:N and "opencl:.+" for opencl:DEVICE between its "^(cpu" and its ")$".
std::string pattern_of(const std::vector<std::string>& choices) {
  std::string pattern;
  for (std::string choice : choices) {
    if (choice.ends_with(any_device))
      choice.replace(choice.size() - any_device.size(), any_device.size(), ".+");
    else if (choice.ends_with(any_number))
      choice.replace(choice.size() - any_number.size(), any_number.size(), ":[0-9]+");
    pattern += (pattern.empty() ? "^(" : "|") + choice;
  }
  return pattern + ")$";
}
}  // namespace

std::string recipe_schema() {
  using nlohmann::json;
  json schema = {{"$schema", "https://json-schema.org/draft/2020-12/schema"},
                 {"title", "weft recipe"},
                 {"type", "object"},
                 {"additionalProperties", false},
                 {"properties", json::object()}};
  for (const RecipeKey& key : recipe_keys()) {
    json entry = {{"description", key.help}};
    json types = json::array({json_type(key.type)});
    if (key.type == integer) {
      types.push_back("string");
      entry["pattern"] = key.word.empty() ? fmt::format("^{}$", count_pattern)
                                          : fmt::format("^({}|{})$", key.word, count_pattern);
    }
    if (key.type == texts) types.push_back("string");
    if (key.initial == "null") types.push_back("null");
    entry["type"] = types.size() == 1 ? types[0] : types;
    if (key.type == texts && !key.choices.empty()) {
      entry["items"] = {{"enum", allowed_values(key)}};
      entry["pattern"] = pattern_of(allowed_values(key));  // of a single word
    } else if (!key.choices.empty()) {
      if (key.choices.find(any_device) != std::string_view::npos)
        entry["pattern"] = pattern_of(allowed_values(key));
      else
        entry["enum"] = allowed_values(key);
      if (key.initial == "null") entry["enum"].push_back(nullptr);
    }
    if (key.low < key.high && (key.type == integer || key.type == number)) {
      entry["minimum"] = key.low;
      if (key.high < most_exact) entry["maximum"] = key.high;
    }
    json* at = &schema["properties"];
    std::string_view path = key.path;
    if (size_t dot = path.find('.'); dot != std::string_view::npos) {
      json& section = (*at)[std::string(path.substr(0, dot))];
      if (section.is_null())
        section = {
            {"type", "object"}, {"additionalProperties", false}, {"properties", json::object()}};
      at = &section["properties"];
      path = path.substr(dot + 1);
    }
    (*at)[std::string(path)] = std::move(entry);
  }
  return io::json_text(schema, 2) + "\n";
}

std::string recipe_reference() {
  std::string page =
      "# Recipe keys\n\n"
      "One recipe is one run. Flag (`--section.key value`) > environment (`WEFT__SECTION__KEY`) > "
      "recipe > default.\n"
      "A map that overrides another changes the options it names and no others; `{}` empties it. "
      "`--model.config.dropout 0.1`\n"
      "(`WEFT__MODEL__CONFIG__DROPOUT`) is one option. Another `model.name` begins without the "
      "recipe's `model.config`.\n"
      "Whole numbers may be counts: 32K is 32,000, 32Ki is 32,768; M, G and T likewise.\n"
      "This page is what `weft config reference` prints.\n\n"
      "| key | type | default | allowed | what it does |\n|---|---|---|---|---|\n";
  for (const RecipeKey& key : recipe_keys()) {
    std::string allowed(key.choices);
    if (key.low < key.high) {
      if (!key.word.empty()) allowed = fmt::format("{} or ", key.word);
      allowed += key.high >= most_exact ? fmt::format(">= {}", key.low)
                                        : fmt::format("{} to {}", key.low, key.high);
    }
    page += fmt::format("| `{}` | {} | `{}` | {} | {} |\n", key.path, type_name(key.type),
                        key.initial, allowed, key.help);
  }
  return page;
}
}  // namespace weft::train
