// What verbs that take a recipe have in common: its name, and flags for its keys.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "weft/cli/verbs.h"

namespace weft::cli {

struct RecipeArguments {
  std::string recipe;
  RecipeFlags flags;  // short ones; "--section.key" are the program's
};

// One of short_flags(), whose value is appended to `flags`.
Option short_flag(RecipeFlags& flags, std::string_view flag);
// Adds those of short_flags() but for `without`: flags that mean something else to this verb.
void add_short_flags(Verb& verb, RecipeArguments& arguments,
                     std::span<const std::string_view> without = {});

// Throws Error(usage) where there is neither a recipe nor a flag.
train::Recipe recipe_of(const Program& program, const RecipeArguments& arguments,
                        std::string_view verb);

}  // namespace weft::cli
