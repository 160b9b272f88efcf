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

// One of short_flags().
void add_short_flag(CLI::App& verb, RecipeFlags& flags, std::string_view flag);
// Those of short_flags() but for `without`: flags that mean something else to this verb.
void add_short_flags(CLI::App& verb, RecipeArguments& arguments,
                     std::span<const std::string_view> without = {});

// Throws Error(usage) where there is neither a recipe nor a flag.
train::Recipe recipe_of(const Program& program, const RecipeArguments& arguments,
                        std::string_view verb);

}  // namespace weft::cli
