#include "weft/cli/recipes/recipe_arguments.h"

#include <algorithm>

#include "weft/base/error.h"
#include "weft/cli/outputs.h"

namespace weft::cli {

Option short_flag(RecipeFlags& flags, std::string_view flag) {
  const ShortFlag& shortcut = *std::ranges::find(short_flags(), flag, &ShortFlag::flag);
  return {.flag = std::string(flag),
          .type = "VALUE",
          .doc = std::string(shortcut.doc),
          .target = [&flags, shortcut](const std::string& value) {
            flags.push_back({std::string(shortcut.flag), std::string(shortcut.path), value});
          }};
}

void add_short_flags(Verb& verb, RecipeArguments& arguments,
                     std::span<const std::string_view> without) {
  for (const ShortFlag& shortcut : short_flags())
    if (std::ranges::find(without, shortcut.flag) == without.end())
      verb.options.push_back(short_flag(arguments.flags, shortcut.flag));
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
  for (const char* key :
       {"data.path", "data.val_path", "model.pretrained", "model.weights", "distillation.teacher"})
    if (recipe.has(key)) check_not_written(program, key, recipe.text(key));
  return recipe;
}

}  // namespace weft::cli
