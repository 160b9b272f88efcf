// Declares the common arguments of verbs that take a recipe: its name, and flags for its keys.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "weft/cli/verbs/verbs.h"

namespace weft::cli {

struct RecipeArguments {
  std::string recipe;
  RecipeFlags flags;  // short ones; the program holds "--section.key"
};

// Returns an option for one of short_flags(), whose value is appended to `flags`.
Option short_flag(RecipeFlags& flags, std::string_view flag);
// Adds the short flags except `without`, which mean something else to this verb.
void add_short_flags(Verb& verb, RecipeArguments& arguments,
                     std::span<const std::string_view> without = {});

// Loads and checks the recipe. Throws Error(usage) where there is neither a recipe nor a flag.
train::Recipe recipe_of(const Program& program, const RecipeArguments& arguments,
                        std::string_view verb);

}  // namespace weft::cli
