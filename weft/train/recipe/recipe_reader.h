// Reads the values of a recipe from YAML, each by the type and the range of its key. Errors are
// thrown as Error(usage), one line that begins with the place of the value.
#pragma once

#include <string>
#include <string_view>

#include <yaml-cpp/yaml.h>

#include "weft/train/recipe/recipe.h"

namespace weft::train {

constexpr size_t max_recipe_bytes = 1 << 20;

// RecipeOrigin is the origin of a value, for messages: "mnist.yaml:12" or "--optimizer.lr".
struct RecipeOrigin {
  std::string name;
  bool lines = false;  // a file, whose nodes have line numbers
  std::string at(const YAML::Node& node) const {
    return lines && node.Mark().line >= 0 ? name + ":" + std::to_string(node.Mark().line + 1)
                                          : name;
  }
};

[[noreturn]] void fail(const RecipeOrigin& origin, const YAML::Node& node, std::string_view path,
                       const std::string& rule);
std::string shown(const YAML::Node& node);  // "'fast'", "a list"

// Parses one document without aliases, of bounded size and depth. `name` is used in messages.
YAML::Node parse_yaml(std::string_view yaml, const std::string& name);
// Refuses a key that a map has twice, as yaml-cpp keeps both. `prefix` precedes the key in the
// message: "optimizer.".
void refuse_duplicates(const RecipeOrigin& origin, const YAML::Node& map,
                       const std::string& prefix);

RecipeValue read_value(const RecipeOrigin& origin, const RecipeKey& key, const YAML::Node& node);
// Reads one entry of a key that is a map.
nn::Option read_option(const RecipeOrigin& origin, const RecipeKey& key, const YAML::Node& node);

}  // namespace weft::train
