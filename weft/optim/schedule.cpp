#include "weft/optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "weft/base/error.h"

namespace weft {
namespace optim {
namespace {
// These are the operations of schedules on numbers and on tensors, so that one formula serves both.
double smaller(double a, double b) { return std::min(a, b); }
double larger(double a, double b) { return std::max(a, b); }
double sine_of(double x) { return std::sin(x); }
double floor_of(double x) { return std::floor(x); }
double power(double base, double exponent) { return std::pow(base, exponent); }
Tensor smaller(const Tensor& a, double b) { return minimum(a, b); }
Tensor larger(const Tensor& a, double b) { return maximum(a, b); }
Tensor sine_of(const Tensor& x) { return sin(x); }
Tensor floor_of(const Tensor& x) { return floor(x); }
Tensor power(double base, const Tensor& exponent) { return pow(base, exponent); }
double like(double, double value) { return value; }
Tensor like(const Tensor& x, double value) { return scalar(value, x.dtype()); }

template <class Number>
Number part_done(const Number& step, double first, double steps) {
  return smaller(larger((step - first) / steps, 0.0), 1.0);
}

// Returns which part of the last `steps` steps, in which the rate falls, is left: 1 before them, 0
// at the end.
template <class Number>
Number part_left(const Number& step, double steps, const ScheduleOptions& options) {
  return smaller(larger((static_cast<double>(options.total) - step) / steps, 0.0), 1.0);
}
double after_warmup(const ScheduleOptions& options) {
  return static_cast<double>(options.total) - static_cast<double>(options.warmup);
}

ScheduleEntry constant_entry() {
  return {
      .name = "constant",
      .doc = "constant learning rate",
      .rate = [](const auto& step, double lr, const ScheduleOptions&) { return like(step, lr); }};
}

ScheduleEntry linear_entry() {
  return {.name = "linear",
          .doc = "decays linearly to min_lr",
          .rate =
              [](const auto& step, double lr, const ScheduleOptions& options) {
                return options.min_lr +
                       (lr - options.min_lr) * part_left(step, after_warmup(options), options);
              },
          .ends = true};
}

ScheduleEntry cosine_entry() {
  return {.name = "cosine",
          .doc = "decays along half a cosine to min_lr",
          .rate =
              [](const auto& step, double lr, const ScheduleOptions& options) {
                // (1 + cos a) / 2 = sin^2((pi - a) / 2), which keeps its digits where a is near pi.
                const auto sine = sine_of(0.5 * std::numbers::pi *
                                          part_left(step, after_warmup(options), options));
                return options.min_lr + (lr - options.min_lr) * (sine * sine);
              },
          .ends = true};
}

ScheduleEntry step_entry() {
  return {.name = "step",
          .doc = "is multiplied by gamma every step_size steps",
          .rate =
              [](const auto& step, double lr, const ScheduleOptions& options) {
                // Half a step is added, as a rounded quotient may be below a whole number.
                return lr * power(options.gamma,
                                  floor_of((step + 0.5) / static_cast<double>(options.every)));
              },
          .needs = {{"scheduler.step_size", "the steps between two decays"}},
          .check =
              [](const ScheduleOptions& options) {
                WEFT_CHECK(options.every > 0, "[step] every must be at least 1. Got {}.",
                           options.every);
              }};
}

ScheduleEntry wsd_entry() {
  return {.name = "wsd",
          .doc = "constant, then decays linearly to min_lr over the last steps",
          .rate =
              [](const auto& step, double lr, const ScheduleOptions& options) {
                return options.min_lr +
                       (lr - options.min_lr) *
                           part_left(step, static_cast<double>(options.decay), options);
              },
          .ends = true,
          .needs = {{"scheduler.decay_steps", "the steps of the decay at the end"}},
          .check =
              [](const ScheduleOptions& options) {
                WEFT_CHECK(options.decay > 0 && options.decay <= options.total - options.warmup,
                           "[wsd] decay must be between 1 and {}, the steps after warmup. Got {}.",
                           options.total - options.warmup, options.decay);
              }};
}
}  // namespace

double progress(double step, double first, double steps) { return part_done(step, first, steps); }
Tensor progress(const Tensor& step, double first, double steps) {
  return part_done(step, first, steps);
}

bool ScheduleEntry::does_need(std::string_view key) const {
  return std::ranges::any_of(needs, [&](const auto& need) { return need.first == key; });
}

Schedule::Schedule(double lr) : Schedule(registry::schedules().get("constant"), lr, {}) {}

Schedule::Schedule(const ScheduleEntry& entry, double lr, const ScheduleOptions& options)
    : entry_(&entry), lr_(lr), options_(options) {
  WEFT_CHECK(lr >= 0 && std::isfinite(lr), "[{}] the learning rate must be at least 0. Got {}.",
             entry.name, lr);
  WEFT_CHECK(options.warmup >= 0, "[{}] warmup must be at least 0 steps. Got {}.", entry.name,
             options.warmup);
  WEFT_CHECK(!entry.ends || options.total > options.warmup,
             "[{}] total must be more than the {} steps of warmup. Got {}.", entry.name,
             options.warmup, options.total);
  if (entry.check) entry.check(options);
}

template <class Number>
Number Schedule::evaluate(const Number& step) const {
  Number rate = entry_->rate(step, lr_, options_);
  if (options_.warmup == 0) return rate;
  return rate * smaller((step + 1.0) / (static_cast<double>(options_.warmup) + 1.0), 1.0);
}

double Schedule::at(int64_t step) const { return evaluate(static_cast<double>(step)); }
Tensor Schedule::at(const Tensor& step, DType dtype) const { return evaluate(cast(step, dtype)); }

Schedule make_schedule(std::string_view name, double lr, const ScheduleOptions& options) {
  return {registry::schedules().get(name), lr, options};
}
Schedule constant(double lr, const ScheduleOptions& options) {
  return make_schedule("constant", lr, options);
}
Schedule linear(double lr, const ScheduleOptions& options) {
  return make_schedule("linear", lr, options);
}
Schedule cosine(double lr, const ScheduleOptions& options) {
  return make_schedule("cosine", lr, options);
}
Schedule step_decay(double lr, const ScheduleOptions& options) {
  return make_schedule("step", lr, options);
}
Schedule wsd(double lr, const ScheduleOptions& options) {
  return make_schedule("wsd", lr, options);
}
}  // namespace optim

Registry<optim::ScheduleEntry>& registry::schedules() {
  using namespace optim;
  static Registry<ScheduleEntry> schedules(
      "scheduler", "schedule",
      {constant_entry(), linear_entry(), cosine_entry(), step_entry(), wsd_entry()});
  return schedules;
}

}  // namespace weft
