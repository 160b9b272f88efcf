#include "weft/optim/registry.h"

#include "weft/optim/adam.h"
#include "weft/optim/sgd.h"

namespace weft::optim {
namespace {
constexpr OptimizerKind kinds[] = {
    {"sgd", "lr, momentum, dampening, nesterov, weight_decay", "stochastic gradient descent"},
    {"adam", "lr, betas, eps, weight_decay", "Adam; decay is added to the gradient"},
    {"adamw", "lr, betas, eps, weight_decay", "Adam with decoupled weight decay"},
};

const OptimizerKind& kind_of(std::string_view name) {
  std::string known;
  for (const OptimizerKind& kind : kinds) {
    if (kind.name == name) return kind;
    known += (known.empty() ? "" : ", ") + std::string(kind.name);
  }
  throw Error(ErrorKind::usage, "[optimizer] unknown optimizer \"{}\". Known: {}.", name, known);
}

void refuse(bool given, std::string_view setting, const OptimizerKind& kind) {
  if (given)
    throw Error(ErrorKind::usage, "[optimizer] {} has no {}. It has: {}.", kind.name, setting,
                kind.settings);
}
}  // namespace

std::span<const OptimizerKind> optimizer_kinds() { return kinds; }

std::unique_ptr<Optimizer> make_optimizer(std::string_view name, std::vector<Variable> parameters,
                                          const OptimizerSettings& settings) {
  const OptimizerKind& kind = kind_of(name);
  if (kind.name == "sgd") {
    refuse(settings.betas.has_value(), "betas", kind);
    refuse(settings.eps.has_value(), "eps", kind);
    return std::make_unique<SGD>(std::move(parameters),
                                 SGDOptions{.lr = settings.lr,
                                            .momentum = settings.momentum.value_or(0),
                                            .dampening = settings.dampening.value_or(0),
                                            .weight_decay = settings.weight_decay.value_or(0),
                                            .nesterov = settings.nesterov.value_or(false),
                                            .groups = settings.groups,
                                            .rounding = settings.rounding});
  }
  refuse(settings.momentum.has_value(), "momentum", kind);
  refuse(settings.dampening.has_value(), "dampening", kind);
  refuse(settings.nesterov.has_value(), "nesterov", kind);
  AdamOptions options{.lr = settings.lr,
                      .betas = settings.betas.value_or(AdamOptions{}.betas),
                      .eps = settings.eps.value_or(AdamOptions{}.eps),
                      .weight_decay = settings.weight_decay,
                      .groups = settings.groups,
                      .rounding = settings.rounding};
  if (kind.name == "adam") return std::make_unique<Adam>(std::move(parameters), options);
  return std::make_unique<AdamW>(std::move(parameters), options);
}

}  // namespace weft::optim
