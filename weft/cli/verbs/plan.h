// Plans a recipe and shows the plan, for `weft plan` and for `weft train --dry-run`.
#pragma once

#include <string>

#include "weft/cli/estimate/estimate_flags.h"
#include "weft/cli/recipes/recipe_arguments.h"
#include "weft/cli/show/terminal.h"
#include "weft/cli/verbs/plan_inference.h"
#include "weft/cli/verbs/verbs.h"
#include "weft/train/run/trainer.h"

namespace weft::cli {

struct PlanArguments : RecipeArguments {
  int depth = 2;
  std::string dot, memory_svg, on, tokens, samples;
  bool explain = false, as_json = false;
  EstimateFlags estimate;
  // These are options of published models.
  InferenceFlags model;
};

int plan(const Program& program, train::Recipe recipe, const PlanArguments& arguments);

// Prints a note where the recipe's device lacks instructions for products in its precision.
void remark_on_precision(const train::Recipe& recipe);

// Prints the table of a refusal before its line.
template <class Function>
auto with_table(bool as_json, Function function) {
  try {
    return function();
  } catch (const train::DoesNotFit& refusal) {
    if (!as_json) show(refusal.table);
    throw;
  }
}

}  // namespace weft::cli
