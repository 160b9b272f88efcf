// Optimizer: what a step does with gradients. All its state are Variables (the step counter,
// moments), and an update is elementwise over each parameter, so that it runs as one kernel in
// place.
#pragma once

#include <functional>
#include <optional>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weft/optim/schedule.h"
#include "weft/tensor/tensor.h"

namespace weft::optim {

// Parameters that are treated apart. The first group that matches a parameter holds.
struct Group {
  std::function<bool(const Variable&)> matches;
  double lr_scale = 1;                      // times the schedule's rate
  std::optional<double> weight_decay = {};  // empty: the optimiser's
};
// No weight decay for what is not a matrix: biases and the weights of norms.
Group no_decay_below_rank_2();

// How new values of bfloat16 parameters, which are computed in float32, are rounded. Other types
// round to nearest.
enum class Rounding : uint8_t {
  nearest,     // an update below half the spacing of a parameter is lost
  stochastic,  // up or down so that the mean is exact (Zamirai et al. 2020)
  kahan,       // what is lost is kept ("compensation.<name of the parameter>") for the next update
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;

  // Assigns the next value of every parameter. Gradients in the order of the parameters. Where
  // `only_if` (a bool) is given and false, nothing but the step counter changes.
  void step(std::span<const Tensor> gradients, const Tensor& only_if = {},
            std::source_location where = std::source_location::current());

  const std::vector<Variable>& parameters() const { return parameters_; }
  // The step counter ("step", i64) and the moments ("exp_avg.<name of the parameter>").
  const std::vector<Variable>& state() const { return state_; }
  const Variable& step_count() const { return state_.front(); }  // steps done
  const Schedule& schedule() const { return lr_; }
  double learning_rate() const;  // of the step to come

 protected:
  Optimizer(std::string_view name, std::vector<Variable> parameters, Schedule lr,
            double weight_decay, std::vector<Group> groups, Rounding rounding);

  // Zeroed state of a parameter's shape, in its accumulator's type.
  std::vector<Variable> make_state(std::string_view prefix);

  // What all updates of a group share: scalars in the accumulator's type of its parameters, made
  // once a step. `step` counts from 1.
  virtual std::vector<Tensor> scalars(const Tensor& step, const Tensor& rate,
                                      double weight_decay) const = 0;
  // The new value of parameter `i`, from its present one, its gradient and those scalars, all in
  // that type. Assigns the parameter's state.
  virtual Tensor update(size_t i, const Tensor& value, const Tensor& gradient,
                        std::span<const Tensor> scalars, double weight_decay) const = 0;
  // How `update` assigns state.
  void set(const Variable& variable, const Tensor& value) const;

 private:
  void check(std::span<const Tensor> gradients) const;
  Variable make_state(std::string_view prefix, const Variable& parameter, DType dtype);
  // A parameter as the update reads it, and the new value as the parameter holds it.
  Tensor widened(size_t i) const;
  Tensor rounded(size_t i, const Tensor& value, RandomKey& noise) const;

  std::string name_;
  std::vector<Variable> parameters_;
  std::vector<Variable> state_;
  Schedule lr_;
  std::vector<Group> groups_;     // the last one matches everything
  std::vector<size_t> group_of_;  // per parameter
  Rounding rounding_;
  std::vector<Variable> lost_;  // per parameter what rounding dropped, where that is kept
  Tensor only_if_;              // of the step in progress
};

}  // namespace weft::optim
