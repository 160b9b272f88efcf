// Optimisers by name, with the settings that a recipe has.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "weft/optim/optimizer.h"

namespace weft::optim {

// Settings that an optimiser does not have must be left out.
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
};

struct OptimizerKind {
  std::string_view name, settings, doc;
};
std::span<const OptimizerKind> optimizer_kinds();

// Throws Error(usage) for an unknown name, or a setting that the optimiser does not have.
std::unique_ptr<Optimizer> make_optimizer(std::string_view name, std::vector<Variable> parameters,
                                          const OptimizerSettings& settings);

}  // namespace weft::optim
