// Recipe keys on the command line: "--optimizer.lr 0.1", "--optimizer.lr=0.1", "--data.reversed",
// "--no-data.reversed"; and the short flags of the commonest ones.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weft/train/recipe.h"

namespace weft::cli {

struct RecipeFlag {
  std::string flag, path, value;  // "--lr", "optimizer.lr", "0.1"
};
using RecipeFlags = std::vector<RecipeFlag>;

struct ShortFlag {
  std::string_view flag, path, doc;
};
std::span<const ShortFlag> short_flags();  // "--lr" for "optimizer.lr"

// Takes the flags with a dot in their name out of the arguments. Throws Error(usage) for an unknown
// key or a missing value.
RecipeFlags take_recipe_flags(std::vector<std::string>& arguments);

// A recipe by its path, or by its name among ./recipes and those that were installed.
std::string find_recipe(const std::string& name);
std::vector<std::string> known_recipes();  // paths, sorted by name

// Those of a verb, then those of the program. Throws Error(usage) where two set the same key.
RecipeFlags joined(RecipeFlags flags, const RecipeFlags& more);

// Flags win. A flag that sets one of two keys of which a recipe has one (train.steps, train.epochs)
// unsets the other.
void apply_flags(train::Recipe& recipe, const RecipeFlags& flags);

// Flag > environment > recipe > default. An empty name: defaults alone.
train::Recipe load_recipe(const std::string& name, const RecipeFlags& flags);

}  // namespace weft::cli
