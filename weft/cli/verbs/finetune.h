// Turns the arguments of `weft finetune`, weights instead of a recipe, into the keys of a recipe.
#pragma once

#include "weft/cli/recipes/recipe_arguments.h"

namespace weft::cli {

// Replaces the name of a model in `arguments` by flags: model.pretrained, and, for keys that no
// flag sets, values that suit weights that are trained already. A model is a folder or GGUF file, a
// checkpoint folder, or a run by its folder or, where no recipe has it, its name. Leaves a recipe
// as it is. Throws Error(usage) for a run without weights of a published model, and without data.
void name_model_to_tune(RecipeArguments& arguments, const RecipeFlags& more);

}  // namespace weft::cli
