#include "weft/cli/recipes/recipe_arguments.h"

#include <algorithm>

#include "weft/base/error.h"
#include "weft/cli/outputs.h"

namespace weft::cli {

Option short_flag(RecipeFlags& flags, std::string_view flag) {
  const RecipeKey& key = *std::ranges::find(short_flags(), flag, &RecipeKey::flag);
  return {.flag = std::string(flag),
          .type = "VALUE",
          .doc = std::string(key.flag_help.empty() ? key.help : key.flag_help),
          .target = [&flags, key](const std::string& value) {
            flags.push_back({std::string(key.flag), std::string(key.path), value});
          }};
}

void add_short_flags(Verb& verb, RecipeArguments& arguments,
                     std::span<const std::string_view> without) {
  for (const RecipeKey& key : short_flags())
    if (std::ranges::find(without, key.flag) == without.end())
      verb.options.push_back(short_flag(arguments.flags, key.flag));
}

train::Recipe recipe_of(const Program& program, const RecipeArguments& arguments,
                        std::string_view verb) {
  const RecipeFlags flags = joined(arguments.flags, program.flags);
  if (arguments.recipe.empty() && flags.empty())
    throw Error(ErrorKind::usage, "weft {} needs a {}. Hint: {}.", verb,
                verb == "finetune" ? "model" : "recipe",
                verb == "finetune" ? "weft finetune FOLDER --data.path FILE"
                                   : "weft init image; weft list recipes");
  train::Recipe recipe = load_recipe(arguments.recipe, flags);
  recipe.check();  // before machine_spec() measures
  if (!arguments.recipe.empty())
    check_not_written(program, "the recipe", find_recipe(arguments.recipe));
  for (const RecipeKey& key : train::recipe_keys())
    if (key.is_input && recipe.has(key.path))
      check_not_written(program, std::string(key.path), recipe.text(key.path));
  return recipe;
}

}  // namespace weft::cli
