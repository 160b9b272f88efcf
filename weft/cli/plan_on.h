// weft plan --on: machines to plan for, whether they are here or not, and several in one table.
#pragma once

#include <string>
#include <vector>

#include "weft/train/recipe.h"

namespace weft::cli {

// "h100,a100" as the values that train.device has for them: "cuda:h100", "cuda:a100"; "cpu" is this
// machine. Throws Error(usage) for what is not in the catalogue, and for several of a GPU.
std::vector<std::string> devices_on(const std::string& names);

// The updates after which a recipe has seen so many tokens ("1B", "300M"), as train.steps of it.
void train_on_tokens(train::Recipe& recipe, const std::string& tokens);

struct PlansOn {
  std::string text;  // a table and the refusals, or JSON
  bool any_fits = false;
};
// What a recipe needs on each of these: whether it fits, at what price, and how long it takes.
// Those that are the quickest come first, those on which it does not fit last, with the reason.
PlansOn plans_on(const train::Recipe& recipe, const std::vector<std::string>& devices,
                 bool as_json);

}  // namespace weft::cli
