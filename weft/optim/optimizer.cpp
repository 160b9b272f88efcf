#include "weft/optim/optimizer.h"

#include <algorithm>
#include <map>
#include <unordered_set>
#include <utility>

namespace weft::optim {
namespace {
// Each parameter's key has a step this much greater than the previous parameter's, so that no key
// is reused by a later training step.
constexpr int64_t next_parameter = 0x9E3779B9;
}  // namespace

Group no_decay_below_rank_2() {
  return {.matches = [](const Variable& parameter) { return parameter.shape().size() < 2; },
          .weight_decay = 0.0};
}

Optimizer::Optimizer(std::string_view name, std::vector<Variable> parameters, Schedule lr,
                     double weight_decay, std::vector<Group> groups, Rounding rounding)
    : name_(name),
      parameters_(std::move(parameters)),
      lr_(std::move(lr)),
      groups_(std::move(groups)),
      rounding_(rounding) {
  WEFT_CHECK(!parameters_.empty(), "[{}] there are no parameters.", name_);
  WEFT_CHECK(weight_decay >= 0, "[{}] weight_decay must be at least 0. Got {}.", name_,
             weight_decay);
  groups_.push_back({.matches = [](const Variable&) { return true; }});
  for (Group& group : groups_)
    if (!group.weight_decay) group.weight_decay = weight_decay;
  std::unordered_set<const VariableState*> known;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    WEFT_CHECK(known.insert(parameters_[i].state().get()).second,
               "[{}] parameter \"{}\" is given twice.", name_, parameters_[i].name());
    auto group = std::find_if(groups_.begin(), groups_.end(),
                              [&](const Group& g) { return g.matches(parameters_[i]); });
    group_of_.push_back(static_cast<size_t>(group - groups_.begin()));
  }
  state_.emplace_back("step", Type{DType::i64, {}}, Category::optimizer_state);
  lost_.resize(parameters_.size());
  for (size_t i = 0; i < parameters_.size(); ++i)
    if (rounding == Rounding::kahan && parameters_[i].type().dtype == DType::bf16)
      lost_[i] = make_state("compensation", parameters_[i], DType::bf16);
}

Optimizer::~Optimizer() = default;

Variable Optimizer::make_state(std::string_view prefix, const Variable& parameter, DType dtype) {
  return state_.emplace_back(std::string(prefix) + "." + parameter.name(),
                             Type{dtype, parameter.shape()}, Category::optimizer_state);
}

std::vector<Variable> Optimizer::make_state(std::string_view prefix) {
  std::vector<Variable> made;
  made.reserve(parameters_.size());
  for (const Variable& parameter : parameters_)
    made.push_back(make_state(prefix, parameter, accumulator(parameter.type().dtype)));
  return made;
}

double Optimizer::learning_rate() const {
  return lr_.at(static_cast<int64_t>(step_count().value().item()));
}

void Optimizer::check(std::span<const Tensor> gradients) const {
  WEFT_CHECK(
      gradients.size() == parameters_.size(),
      "[{}] takes one gradient per parameter ({}), in the order of the parameters. Got {}.{}",
      name_, parameters_.size(), gradients.size(),
      std::ranges::any_of(parameters_, &Variable::frozen)
          ? " Hint: freeze parameters before the optimizer is created."
          : "");
  for (size_t i = 0; i < gradients.size(); ++i)
    WEFT_CHECK(gradients[i].shape() == parameters_[i].shape(),
               "[{}] the gradient of \"{}\" must have its shape {}. Got {}.", name_,
               parameters_[i].name(), to_string(parameters_[i].shape()),
               to_string(gradients[i].type()));
}

void Optimizer::set(const Variable& variable, const Tensor& value) const {
  variable.assign(only_if_.defined() ? select(only_if_, value, variable.value()) : value);
}

Tensor Optimizer::widened(size_t i) const {
  DType dtype = accumulator(parameters_[i].type().dtype);
  Tensor value = cast(parameters_[i].value(), dtype);
  return lost_[i].defined() ? value + cast(lost_[i].value(), dtype) : value;
}

Tensor Optimizer::rounded(size_t i, const Tensor& value, RandomKey& noise) const {
  const Type& type = parameters_[i].type();
  if (rounding_ == Rounding::stochastic && type.dtype == DType::bf16) {
    // Keys differ in the step, a runtime value, so that kernels of equal parameters stay equal.
    noise = noise.step.defined() ? RandomKey{noise.step + next_parameter, noise.seed, noise.stream}
                                 : next_random_key();
    return round_stochastic(value, uniform(type.shape, noise));
  }
  Tensor nearest = cast(value, type.dtype);
  if (lost_[i].defined()) set(lost_[i], cast(value - cast(nearest, value.dtype()), type.dtype));
  return nearest;
}

void Optimizer::step(std::span<const Tensor> gradients, const Tensor& only_if,
                     std::source_location where) {
  OriginScope scope("optimizer", {where.file_name(), where.line()});
  check(gradients);
  only_if_ = only_if;
  Tensor done = step_count().value();
  std::map<std::pair<size_t, DType>, std::vector<Tensor>> shared;  // by group and type
  auto shared_scalars = [&](size_t group, DType dtype) -> const std::vector<Tensor>& {
    auto [it, absent] = shared.try_emplace({group, dtype});
    if (!absent) return it->second;
    const Group& its = groups_[group];
    it->second =
        scalars(cast(done, dtype) + 1.0, lr_.at(done, dtype) * its.lr_scale, *its.weight_decay);
    return it->second;
  };

  std::vector<Tensor> next;  // computed before any is assigned, so that all read the old values
  RandomKey noise;           // the key of the last parameter that drew noise
  for (size_t i = 0; i < parameters_.size(); ++i) {
    Tensor value = widened(i);
    value =
        update(i, value, cast(gradients[i], value.dtype()),
               shared_scalars(group_of_[i], value.dtype()), *groups_[group_of_[i]].weight_decay);
    next.push_back(rounded(i, value, noise));
  }
  for (size_t i = 0; i < parameters_.size(); ++i) set(parameters_[i], next[i]);
  only_if_ = {};
  step_count().assign(done + 1);
}

}  // namespace weft::optim
