// Reads the values of a recipe from YAML: each by the type and the range of its key. What is wrong
// throws Error(usage), one line that begins with where it stands.
#pragma once

#include <string>
#include <string_view>

#include <yaml-cpp/yaml.h>

#include "weft/train/recipe.h"

namespace weft::train {

constexpr size_t max_recipe_bytes = 1 << 20;

// Where a value came from, for messages: "mnist.yaml:12" or "--optimizer.lr".
struct RecipeOrigin {
  std::string name;
  bool lines = false;  // a file, in which nodes have lines
  std::string at(const YAML::Node& node) const {
    return lines && node.Mark().line >= 0 ? name + ":" + std::to_string(node.Mark().line + 1)
                                          : name;
  }
};

[[noreturn]] void fail(const RecipeOrigin& origin, const YAML::Node& node, std::string_view path,
                       const std::string& rule);
std::string shown(const YAML::Node& node);  // "'fast'", "a list"

// One document without aliases, of bounded size and depth. `name` stands in messages.
YAML::Node parse_yaml(std::string_view yaml, const std::string& name);
// yaml-cpp keeps both of two equal keys. `prefix` stands before them in the message: "optimizer.".
void refuse_duplicates(const RecipeOrigin& origin, const YAML::Node& map,
                       const std::string& prefix);

Recipe::Value read_value(const RecipeOrigin& origin, const RecipeKey& key, const YAML::Node& node);
// One entry of a key that is a map.
nn::Option read_option(const RecipeOrigin& origin, const RecipeKey& key, const YAML::Node& node);

}  // namespace weft::train
