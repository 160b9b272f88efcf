// Declares learning-rate schedules: the rate of a step as a function of its number (0 is the
// first). A schedule enters the graph as an expression of the step counter, so nothing recompiles
// when the rate moves.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "weft/base/recipe/recipe_key.h"
#include "weft/base/recipe/registry.h"
#include "weft/tensor/tensor.h"

namespace weft::optim {

struct ScheduleOptions {
  int64_t warmup = 0;  // steps of linear rise: rate * (step + 1) / (warmup + 1)
  int64_t total = 0;   // steps in all (linear, cosine, wsd); later steps keep the last rate
  double min_lr = 0;   // where linear, cosine and wsd end
  int64_t decay = 0;   // wsd: the last steps, in which the rate falls linearly
  int64_t every = 0;   // step_decay: the rate is multiplied by gamma after so many steps
  double gamma = 0.1;
  KeyValues keys = {};  // the values of ScheduleEntry::keys
};

// ScheduleFormula gives the rate of a step from its number, the peak rate and the options. One
// formula serves numbers, for logs, and tensors, which the compiled step computes.
//   [](const auto& step, double lr, const ScheduleOptions& options) { return lr / (step + 1.0); }
class ScheduleFormula {
 public:
  template <class Formula>
    requires(!std::same_as<std::remove_cvref_t<Formula>, ScheduleFormula>)
  ScheduleFormula(Formula formula) : number_(formula), tensor_(formula) {}

  double operator()(double step, double lr, const ScheduleOptions& options) const {
    return number_(step, lr, options);
  }
  Tensor operator()(const Tensor& step, double lr, const ScheduleOptions& options) const {
    return tensor_(step, lr, options);
  }

 private:
  std::function<double(double, double, const ScheduleOptions&)> number_;
  std::function<Tensor(const Tensor&, double, const ScheduleOptions&)> tensor_;
};
// Returns for formulas which part of the `steps` steps from `first` on is done: 0 before them, 1
// after them.
double progress(double step, double first, double steps);
Tensor progress(const Tensor& step, double first, double steps);

struct ScheduleEntry {
  std::string name, doc;
  ScheduleFormula rate;  // without warmup, which multiplies it
  bool ends = false;     // the rate falls until the last step; warmup must leave steps for that
  // `needs` has the integer keys of a recipe that the schedule requires, each with its meaning for
  // messages.
  std::vector<std::pair<std::string_view, std::string_view>> needs = {};
  std::function<void(const ScheduleOptions&)> check = {};  // throws Error(usage)
  std::vector<RecipeKey> keys = {};                        // added to the recipe's table

  bool does_need(std::string_view key) const;
};

class Schedule {
 public:
  Schedule(double lr);  // constant
  Schedule(const ScheduleEntry& entry, double lr, const ScheduleOptions& options);

  double at(int64_t step) const;  // on the host, for logs
  // Returns a scalar of `dtype`, f32 or f64; `step` is an integer scalar.
  Tensor at(const Tensor& step, DType dtype) const;
  double peak() const { return lr_; }

 private:
  template <class Number>
  Number evaluate(const Number& step) const;

  const ScheduleEntry* entry_;  // the schedule's entry in the registry
  double lr_;
  ScheduleOptions options_;
};

Schedule constant(double lr, const ScheduleOptions& options = {});
Schedule linear(double lr, const ScheduleOptions& options);
Schedule cosine(double lr, const ScheduleOptions& options);  // Loshchilov & Hutter 2017, one period
Schedule step_decay(double lr, const ScheduleOptions& options);
Schedule wsd(double lr, const ScheduleOptions& options);  // warm-up, stable, decay: Hu et al. 2024

// Makes a schedule by its name in recipes; throws Error(usage) that lists the known names.
Schedule make_schedule(std::string_view name, double lr, const ScheduleOptions& options);

}  // namespace weft::optim

namespace weft::registry {
Registry<optim::ScheduleEntry>& schedules();  // scheduler.name
}
