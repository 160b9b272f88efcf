// Makes optimizers by name, with the settings that a recipe has.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weft/base/recipe/recipe_key.h"
#include "weft/base/recipe/registry.h"
#include "weft/optim/optimizer.h"

namespace weft::optim {

// OptimizerSettings are the optimizer settings of a recipe. Settings that an optimizer does not
// have must be empty.
struct OptimizerSettings {
  Schedule lr = 1e-3;
  std::optional<double> weight_decay = {};
  std::optional<std::array<double, 2>> betas = {};  // adam, adamw
  std::optional<double> eps = {};                   // adam, adamw
  std::optional<double> momentum = {};              // sgd
  std::optional<double> dampening = {};             // sgd
  std::optional<bool> nesterov = {};                // sgd
  std::vector<Group> groups = {};
  Rounding rounding = Rounding::nearest;
  KeyValues keys = {};  // the values of OptimizerEntry::keys
};

struct OptimizerEntry {
  std::string name, doc;
  // `settings` names the OptimizerSettings that the optimizer has besides groups, rounding and
  // keys: "lr, betas, eps, weight_decay".
  std::string settings;
  std::function<std::unique_ptr<Optimizer>(std::vector<Variable> parameters,
                                           const OptimizerSettings& settings)>
      make;
  std::vector<RecipeKey> keys = {};  // added to the recipe's table: "optimizer.rho"

  bool has(std::string_view setting) const;
  std::string all_settings() const;  // "lr, rho"
};

// Makes an optimizer; throws Error(usage) for an unknown name, or a setting that it does not have.
std::unique_ptr<Optimizer> make_optimizer(std::string_view name, std::vector<Variable> parameters,
                                          const OptimizerSettings& settings);

}  // namespace weft::optim

namespace weft::registry {
Registry<optim::OptimizerEntry>& optimizers();  // optimizer.name
}
