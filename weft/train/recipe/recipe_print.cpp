// Prints recipes as YAML that reads back as the same recipe, and as JSON.
#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <yaml-cpp/yaml.h>

#include "weft/io/json.h"
#include "weft/train/recipe/recipe.h"

namespace weft::train {
namespace {
using nlohmann::json;

// Writes values as YAML that reads back as the same. Numbers are passed as text: yaml-cpp prints
// them with the thousands separators of the program's locale.
struct RecipeWriter {
  YAML::Emitter& out;

  void operator()(std::monostate) const { out << YAML::Null; }
  void operator()(bool value) const { out << value; }
  void operator()(int64_t value) const { out << fmt::format("{}", value); }
  void operator()(double value) const { out << fmt::format("{}", value); }
  void operator()(const std::string& value) const {
    // yaml-cpp would write a carriage return as it is, and would read it as the end of a line.
    if (value.find('\r') != std::string::npos) out << YAML::DoubleQuoted;
    out << value;
  }
  template <class T>
  void operator()(const std::vector<T>& values) const {
    out << YAML::Flow << YAML::BeginSeq;
    for (const T& value : values) (*this)(value);
    out << YAML::EndSeq;
  }
  void operator()(const nn::Option& option) const { std::visit(*this, option); }
  void operator()(const nn::NestedOptions& options) const { (*this)(*options); }
  void operator()(const nn::Options& options) const {
    out << YAML::Flow << YAML::BeginMap;
    for (const auto& [key, value] : options.entries()) {
      out << YAML::Key;
      (*this)(key);
      out << YAML::Value;
      (*this)(value);
    }
    out << YAML::EndMap;
  }
  void named(const std::string& name, const nn::Options& options) const {
    if (options.entries().empty()) {
      (*this)(name);
      return;
    }
    out << YAML::Flow << YAML::BeginMap << YAML::Key;
    (*this)(name);
    out << YAML::Value;
    (*this)(options);
    out << YAML::EndMap;
  }
  void operator()(const nn::LayerSpec& layer) const { named(layer.name, layer.options); }
  void operator()(const TransformSpec& transform) const {
    named(transform.name, transform.options);
  }
};

struct JsonWriter {
  json operator()(std::monostate) const { return nullptr; }
  template <class T>
  json operator()(const T& value) const {
    return value;
  }
  template <class T>
  json operator()(const std::vector<T>& values) const {
    json list = json::array();
    for (const T& value : values) list.push_back((*this)(value));
    return list;
  }
  json operator()(const nn::Option& option) const { return std::visit(*this, option); }
  json operator()(const nn::NestedOptions& options) const { return (*this)(*options); }
  json operator()(const nn::Options& options) const {
    json map = json::object();
    for (const auto& [key, value] : options.entries()) map[key] = (*this)(value);
    return map;
  }
  json named(const std::string& name, const nn::Options& options) const {
    return options.entries().empty() ? json(name) : json{{name, (*this)(options)}};
  }
  json operator()(const nn::LayerSpec& layer) const { return named(layer.name, layer.options); }
  json operator()(const TransformSpec& transform) const {
    return named(transform.name, transform.options);
  }
};
}  // namespace

std::string Recipe::to_json() const {
  json all;
  for (const RecipeKey& key : recipe_keys()) {
    std::string pointer = "/" + std::string(key.path);
    std::replace(pointer.begin(), pointer.end(), '.', '/');
    all[json::json_pointer(pointer)] = std::visit(JsonWriter(), get(key.path));
  }
  return io::json_text(all, 2) + "\n";
}

std::string Recipe::to_yaml(std::string_view path) const {
  YAML::Emitter out;
  std::visit(RecipeWriter{out}, get(path));
  return out.c_str();
}

std::string Recipe::to_yaml() const {
  YAML::Emitter out;
  out.SetNullFormat(YAML::LowerNull);
  RecipeWriter writer{out};
  out << YAML::BeginMap;
  std::string_view section;
  for (const RecipeKey& key : recipe_keys()) {
    size_t dot = key.path.find('.');
    std::string_view in = dot == std::string_view::npos ? "" : key.path.substr(0, dot);
    if (in != section) {
      if (!section.empty()) out << YAML::EndMap;
      if (!in.empty()) out << YAML::Key << std::string(in) << YAML::Value << YAML::BeginMap;
      section = in;
    }
    out << YAML::Key << std::string(key.path.substr(dot == std::string_view::npos ? 0 : dot + 1))
        << YAML::Value;
    std::visit(writer, get(key.path));
  }
  if (!section.empty()) out << YAML::EndMap;
  out << YAML::EndMap;
  return std::string(out.c_str()) + "\n";
}
}  // namespace weft::train
