#include "weft/optim/registry.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "weft/base/error.h"
#include "weft/optim/adam.h"
#include "weft/optim/sgd.h"

namespace weft {
namespace optim {
namespace {
constexpr std::string_view of_adam = "lr, betas, eps, weight_decay";

template <class A>
std::unique_ptr<Optimizer> adam(std::vector<Variable> parameters,
                                const OptimizerSettings& settings) {
  return std::make_unique<A>(std::move(parameters),
                             AdamOptions{.lr = settings.lr,
                                         .betas = settings.betas.value_or(AdamOptions{}.betas),
                                         .eps = settings.eps.value_or(AdamOptions{}.eps),
                                         .weight_decay = settings.weight_decay,
                                         .groups = settings.groups,
                                         .rounding = settings.rounding});
}

std::unique_ptr<Optimizer> sgd(std::vector<Variable> parameters,
                               const OptimizerSettings& settings) {
  return std::make_unique<SGD>(std::move(parameters),
                               SGDOptions{.lr = settings.lr,
                                          .momentum = settings.momentum.value_or(0),
                                          .dampening = settings.dampening.value_or(0),
                                          .weight_decay = settings.weight_decay.value_or(0),
                                          .nesterov = settings.nesterov.value_or(false),
                                          .groups = settings.groups,
                                          .rounding = settings.rounding});
}

void refuse(bool given, std::string_view setting, const OptimizerEntry& entry) {
  if (given && !entry.has(setting))
    throw Error(ErrorKind::usage, "[optimizer] {} has no {}. It has: {}.", entry.name, setting,
                entry.all_settings());
}

// Returns "rho" of "optimizer.rho".
std::string_view setting_of(std::string_view path) { return path.substr(path.rfind('.') + 1); }
}  // namespace

std::string OptimizerEntry::all_settings() const {
  std::string all = settings;
  for (const RecipeKey& key : keys)
    all += fmt::format("{}{}", all.empty() ? "" : ", ", setting_of(key.path));
  return all;
}
bool OptimizerEntry::has(std::string_view setting) const {
  return fmt::format(", {},", all_settings()).find(fmt::format(", {},", setting)) !=
         std::string::npos;
}

std::unique_ptr<Optimizer> make_optimizer(std::string_view name, std::vector<Variable> parameters,
                                          const OptimizerSettings& settings) {
  const OptimizerEntry& entry = registry::optimizers().get(name);
  refuse(settings.betas.has_value(), "betas", entry);
  refuse(settings.eps.has_value(), "eps", entry);
  refuse(settings.momentum.has_value(), "momentum", entry);
  refuse(settings.dampening.has_value(), "dampening", entry);
  refuse(settings.nesterov.has_value(), "nesterov", entry);
  for (const auto& [path, value] : settings.keys.entries())
    refuse(std::ranges::find(entry.keys, path, &RecipeKey::path) == entry.keys.end(),
           setting_of(path), entry);
  return entry.make(std::move(parameters), settings);
}
}  // namespace optim

Registry<optim::OptimizerEntry>& registry::optimizers() {
  using namespace optim;
  static Registry<OptimizerEntry> optimizers(
      "optimizer", "optimizer",
      {{.name = "adamw",
        .doc = "Adam with decoupled weight decay",
        .settings = std::string(of_adam),
        .make = adam<AdamW>},
       {.name = "adam",
        .doc = "Adam; decay is added to the gradient",
        .settings = std::string(of_adam),
        .make = adam<Adam>},
       {.name = "sgd",
        .doc = "stochastic gradient descent",
        .settings = "lr, momentum, dampening, nesterov, weight_decay",
        .make = sgd}});
  return optimizers;
}

}  // namespace weft
