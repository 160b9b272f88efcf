// Reads the values of a recipe from YAML, each by the type and the range of its key. Errors are
// thrown as Error(usage), one line that begins with the place of the value.
#pragma once

#include <yaml-cpp/yaml.h>

#include "weft/train/recipe/recipe.h"
#include "weft/train/recipe/yaml_text.h"

namespace weft::train {

RecipeValue read_value(const RecipeOrigin& origin, const RecipeKey& key, const YAML::Node& node);
// Reads one entry of a key that is a map.
nn::Option read_option(const RecipeOrigin& origin, const RecipeKey& key, const YAML::Node& node);

}  // namespace weft::train
