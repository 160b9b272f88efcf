// Parses YAML from outside, recipes and files of devices: a document of bounded size and depth, and
// errors that name the line. They are thrown as Error(usage), one line that begins with the place.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include <yaml-cpp/yaml.h>

namespace weft::train {

constexpr size_t max_yaml_bytes = 1 << 20;

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

// Parses one document without aliases, of bounded size and depth. Messages call it `name`, and say
// what it is: "a recipe".
YAML::Node parse_yaml(std::string_view yaml, const std::string& name,
                      std::string_view what = "a recipe");
// Refuses a key that a map has twice, as yaml-cpp keeps both. `prefix` precedes the key in the
// message: "optimizer.".
void refuse_duplicates(const RecipeOrigin& origin, const YAML::Node& map,
                       const std::string& prefix);

}  // namespace weft::train
