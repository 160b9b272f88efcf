// Reads recipe keys on the command line: "--optimizer.lr 0.1", "--optimizer.lr=0.1",
// "--data.reversed", "--no-data.reversed"; and short flags for the most common ones.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weft/train/recipe/recipe.h"

namespace weft::cli {

namespace keys = train::keys;

struct RecipeFlag {
  std::string flag, path, value;  // "--lr", "optimizer.lr", "0.1"
};
using RecipeFlags = std::vector<RecipeFlag>;

// Returns the keys that have a short flag ("--lr" for "optimizer.lr"), in the reference's order.
std::span<const RecipeKey> short_flags();

// Removes the flags with a dot in their name from the arguments and returns them. Throws
// Error(usage) for an unknown key or a missing value.
RecipeFlags take_recipe_flags(std::vector<std::string>& arguments);

// Returns the path of a recipe, given by path, by the folder of a run or a checkpoint that has one,
// or by its name in ./recipes or among the installed ones.
std::string find_recipe(const std::string& name);
std::vector<std::string> known_recipes();  // paths, sorted by name

// Joins the flags of a verb and of the program. Throws Error(usage) where two set the same key.
RecipeFlags joined(RecipeFlags flags, const RecipeFlags& more);

// Applies flags, which override the recipe. A flag that sets one of two exclusive keys
// (train.steps, train.epochs) unsets the other.
void apply_flags(train::Recipe& recipe, const RecipeFlags& flags);

// Loads a recipe; precedence: flag > environment > recipe > default. An empty name gives the
// defaults.
train::Recipe load_recipe(const std::string& name, const RecipeFlags& flags);

}  // namespace weft::cli
