#include "weft/cli/recipe_arguments.h"

#include <algorithm>

#include <CLI/CLI.hpp>

#include "weft/base/error.h"

namespace weft::cli {

void add_short_flags(CLI::App& verb, RecipeArguments& arguments,
                     std::span<const std::string_view> without) {
  for (const ShortFlag& shortcut : short_flags()) {
    if (std::ranges::find(without, shortcut.flag) != without.end()) continue;
    verb.add_option_function<std::string>(
            std::string(shortcut.flag),
            [&arguments, shortcut](const std::string& value) {
              arguments.flags.push_back(
                  {std::string(shortcut.flag), std::string(shortcut.path), value});
            },
            std::string(shortcut.doc))
        ->type_name("VALUE");
  }
}

train::Recipe recipe_of(const Program& program, const RecipeArguments& arguments,
                        std::string_view verb) {
  RecipeFlags flags = arguments.flags;
  flags.insert(flags.end(), program.flags.begin(), program.flags.end());
  if (arguments.recipe.empty() && flags.empty())
    throw Error(ErrorKind::usage,
                "weft {} needs a recipe. Hint: weft init image; weft list recipes.", verb);
  train::Recipe recipe = load_recipe(arguments.recipe, flags);
  recipe.check();  // before the machine is measured
  return recipe;
}

}  // namespace weft::cli
