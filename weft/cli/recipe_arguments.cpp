#include "weft/cli/recipe_arguments.h"

#include <algorithm>

#include <CLI/CLI.hpp>

#include "weft/base/error.h"

namespace weft::cli {

void add_short_flag(CLI::App& verb, RecipeFlags& flags, std::string_view flag) {
  const ShortFlag& shortcut = *std::ranges::find(short_flags(), flag, &ShortFlag::flag);
  verb.add_option_function<std::string>(
          std::string(flag),
          [&flags, shortcut](const std::string& value) {
            flags.push_back({std::string(shortcut.flag), std::string(shortcut.path), value});
          },
          std::string(shortcut.doc))
      ->type_name("VALUE");
}

void add_short_flags(CLI::App& verb, RecipeArguments& arguments,
                     std::span<const std::string_view> without) {
  for (const ShortFlag& shortcut : short_flags())
    if (std::ranges::find(without, shortcut.flag) == without.end())
      add_short_flag(verb, arguments.flags, shortcut.flag);
}

train::Recipe recipe_of(const Program& program, const RecipeArguments& arguments,
                        std::string_view verb) {
  const RecipeFlags flags = joined(arguments.flags, program.flags);
  if (arguments.recipe.empty() && flags.empty())
    throw Error(ErrorKind::usage,
                "weft {} needs a recipe. Hint: weft init image; weft list recipes.", verb);
  train::Recipe recipe = load_recipe(arguments.recipe, flags);
  recipe.check();  // before the machine is measured
  return recipe;
}

}  // namespace weft::cli
