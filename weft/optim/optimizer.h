// An Optimizer updates parameters by their gradients. All its state is in Variables (step counter,
// moments), and an update is elementwise over each parameter, so that it runs in place as one
// kernel.
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

// Group selects parameters with settings of their own. The first group that matches applies.
struct Group {
  std::function<bool(const Variable&)> matches;
  double lr_scale = 1;                      // times the schedule's rate
  std::optional<double> weight_decay = {};  // empty: the optimizer's
};
// Returns a group without weight decay for all but matrices: biases and the weights of norms.
Group no_decay_below_rank_2();

// Rounding says how new values of bfloat16 parameters, which are computed in float32, are rounded.
// Other types round to nearest.
enum class Rounding : uint8_t {
  nearest,     // an update below half the spacing of a parameter is lost
  stochastic,  // up or down so that the mean is exact (Zamirai et al. 2020)
  kahan,       // the error is kept ("compensation.<name of the parameter>") for the next update
};

class Optimizer {
 public:
  virtual ~Optimizer();

  // Assigns the next value of every parameter; gradients are in the order of the parameters. If
  // `only_if` (a bool) is given and false, only the step counter changes.
  void step(std::span<const Tensor> gradients, const Tensor& only_if = {},
            std::source_location where = std::source_location::current());

  const std::vector<Variable>& parameters() const { return parameters_; }
  // Returns the step counter ("step", i64) and the moments ("exp_avg.<name of the parameter>").
  const std::vector<Variable>& state() const { return state_; }
  const Variable& step_count() const { return state_.front(); }  // steps done
  const Schedule& schedule() const { return lr_; }
  double learning_rate() const;  // the rate of the step to come

 protected:
  Optimizer(std::string_view name, std::vector<Variable> parameters, Schedule lr,
            double weight_decay, std::vector<Group> groups, Rounding rounding);

  // Makes zeroed state for each parameter, of its shape and its accumulator's type.
  std::vector<Variable> make_state(std::string_view prefix);

  // Returns the scalars that all updates of a group share, in the type of the update, once per
  // step. `step` counts from 1.
  virtual std::vector<Tensor> scalars(const Tensor& step, const Tensor& rate,
                                      double weight_decay) const = 0;
  // Returns the new value of parameter `i` from its current value, its gradient and the result of
  // scalars(), all in the accumulator's type. Assigns the parameter's state.
  virtual Tensor update(size_t i, const Tensor& value, const Tensor& gradient,
                        std::span<const Tensor> scalars, double weight_decay) const = 0;
  // Assigns state for update(), unless `only_if` is false.
  void set(const Variable& variable, const Tensor& value) const;

 private:
  void check(std::span<const Tensor> gradients) const;
  Variable make_state(std::string_view prefix, const Variable& parameter, DType dtype);
  // widened() returns a parameter in the type of updates, rounded() a new value in the parameter's.
  Tensor widened(size_t i) const;
  Tensor rounded(size_t i, const Tensor& value, RandomKey& noise) const;

  std::string name_;
  std::vector<Variable> parameters_;
  std::vector<Variable> state_;
  Schedule lr_;
  std::vector<Group> groups_;     // the last one matches everything
  std::vector<size_t> group_of_;  // per parameter
  Rounding rounding_;
  std::vector<Variable> lost_;  // per parameter the rounding error, if kept
  Tensor only_if_;              // the condition of the step in progress
};

}  // namespace weft::optim
