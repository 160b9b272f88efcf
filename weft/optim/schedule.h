// Learning-rate schedules: the rate of a step as a function of its number (0 is the first). A
// schedule enters the graph as an expression of the step counter, so nothing recompiles when the
// rate moves.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "weft/tensor/tensor.h"

namespace weft::optim {

struct ScheduleOptions {
  int64_t warmup = 0;  // steps of linear rise: rate * (step + 1) / (warmup + 1)
  int64_t total = 0;   // steps in all (linear, cosine, wsd); later steps keep the last rate
  double min_lr = 0;   // where linear, cosine and wsd end
  int64_t decay = 0;   // wsd: how many of the last steps fall, linearly
  int64_t every = 0;   // step_decay: the rate is multiplied by gamma after so many steps
  double gamma = 0.1;
};

class Schedule {
 public:
  enum class Kind { constant, linear, cosine, step, wsd };

  Schedule(double lr) : Schedule(Kind::constant, lr, {}) {}
  Schedule(Kind kind, double lr, const ScheduleOptions& options);

  double at(int64_t step) const;        // on the host, for logs
  Tensor at(const Tensor& step) const;  // f64 scalar; `step` is an integer scalar
  double peak() const { return lr_; }

 private:
  template <class Number>
  Number evaluate(const Number& step) const;

  Kind kind_;
  double lr_;
  ScheduleOptions options_;
};

Schedule constant(double lr, const ScheduleOptions& options = {});
Schedule linear(double lr, const ScheduleOptions& options);
Schedule cosine(double lr, const ScheduleOptions& options);  // Loshchilov & Hutter 2017, one period
Schedule step_decay(double lr, const ScheduleOptions& options);
Schedule wsd(double lr, const ScheduleOptions& options);  // warm-up, stable, decay: Hu et al. 2024

// By the name a recipe uses; throws Error(usage) naming the known ones.
Schedule make_schedule(std::string_view name, double lr, const ScheduleOptions& options);
struct ScheduleKind {
  std::string_view name, doc;
};
std::span<const ScheduleKind> schedule_kinds();

}  // namespace weft::optim
