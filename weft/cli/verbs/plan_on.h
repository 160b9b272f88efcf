// Implements `weft plan --on`: plans for machines that may be absent, several in one table.
#pragma once

#include <string>
#include <vector>

#include "weft/train/recipe/recipe.h"

namespace weft::cli {

// Parses "h100,a100" into values of train.device: "cuda:h100", "cuda:a100"; "cpu" is this machine.
// Throws Error(usage) for names outside the catalogue and for several GPUs ("h100x8").
std::vector<std::string> devices_on(const std::string& names);

// Sets train.steps to the updates after which the recipe has seen `tokens` ("1B", "300M").
void train_on_tokens(train::Recipe& recipe, const std::string& tokens);

// Sets train.steps to train.epochs passes over so many samples, whatever the recipe's data are. The
// rest of a pass that fills no batch is left out, as training leaves it out.
void train_on_samples(train::Recipe& recipe, const std::string& samples);

struct PlansOn {
  std::string text;  // a table and the refusals, or JSON
  bool any_fits = false;
};
// Plans a recipe for each device: whether it fits, at what price, and how long it takes. The
// fastest devices come first; devices on which it does not fit come last, with the reason.
PlansOn plans_on(const train::Recipe& recipe, const std::vector<std::string>& devices,
                 bool as_json);

}  // namespace weft::cli
