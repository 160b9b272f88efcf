#include "weft/optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace weft::optim {
namespace {
// The few operations of a schedule, on numbers as on tensors: one formula serves both.
double smaller(double a, double b) { return std::min(a, b); }
double larger(double a, double b) { return std::max(a, b); }
double cosine_of(double x) { return std::cos(x); }
double floor_of(double x) { return std::floor(x); }
double power(double base, double exponent) { return std::pow(base, exponent); }
Tensor smaller(const Tensor& a, double b) { return minimum(a, b); }
Tensor larger(const Tensor& a, double b) { return maximum(a, b); }
Tensor cosine_of(const Tensor& x) { return cos(x); }
Tensor floor_of(const Tensor& x) { return floor(x); }
Tensor power(double base, const Tensor& exponent) { return pow(base, exponent); }
double like(double, double value) { return value; }
Tensor like(const Tensor& x, double value) { return scalar(value, x.dtype()); }

constexpr ScheduleKind kinds[] = {
    {"constant", "one rate throughout"},
    {"linear", "falls in a straight line to min_lr"},
    {"cosine", "falls along half a cosine to min_lr"},
    {"step", "is multiplied by gamma every so many steps"},
    {"wsd", "stays, then falls in a straight line to min_lr over the last steps"},
};
}  // namespace

Schedule::Schedule(Kind kind, double lr, const ScheduleOptions& options)
    : kind_(kind), lr_(lr), options_(options) {
  std::string_view name = kinds[static_cast<size_t>(kind)].name;
  WEFT_CHECK(lr >= 0 && std::isfinite(lr), "[{}] the learning rate must be at least 0. Got {}.",
             name, lr);
  WEFT_CHECK(options.warmup >= 0, "[{}] warmup must be at least 0 steps. Got {}.", name,
             options.warmup);
  bool ends = kind == Kind::linear || kind == Kind::cosine || kind == Kind::wsd;
  WEFT_CHECK(!ends || options.total > options.warmup,
             "[{}] total must be more than the {} steps of warmup. Got {}.", name, options.warmup,
             options.total);
  WEFT_CHECK(kind != Kind::step || options.every > 0, "[step] every must be at least 1. Got {}.",
             options.every);
  WEFT_CHECK(
      kind != Kind::wsd || (options.decay > 0 && options.decay <= options.total - options.warmup),
      "[wsd] decay must be between 1 and {}, the steps after warmup. Got {}.",
      options.total - options.warmup, options.decay);
}

template <class Number>
Number Schedule::evaluate(const Number& step) const {
  double warmup = static_cast<double>(options_.warmup), total = static_cast<double>(options_.total);
  double range = lr_ - options_.min_lr;
  // Of the falling part that takes `steps` and ends at `total`: 0 before it, 1 after it.
  auto progress = [&](double steps) {
    return smaller(larger((step - (total - steps)) / steps, 0.0), 1.0);
  };
  Number rate = like(step, lr_);
  switch (kind_) {
    case Kind::constant:
      break;
    case Kind::linear:
      rate = lr_ - range * progress(total - warmup);
      break;
    case Kind::cosine:
      rate = options_.min_lr +
             0.5 * range * (1.0 + cosine_of(std::numbers::pi * progress(total - warmup)));
      break;
    case Kind::step:
      rate = lr_ * power(options_.gamma, floor_of(step / static_cast<double>(options_.every)));
      break;
    case Kind::wsd:
      rate = lr_ - range * progress(static_cast<double>(options_.decay));
      break;
  }
  if (options_.warmup == 0) return rate;
  return rate * smaller((step + 1.0) / (warmup + 1.0), 1.0);
}

double Schedule::at(int64_t step) const { return evaluate(static_cast<double>(step)); }
Tensor Schedule::at(const Tensor& step) const { return evaluate(cast(step, DType::f64)); }

Schedule constant(double lr, const ScheduleOptions& options) {
  return {Schedule::Kind::constant, lr, options};
}
Schedule linear(double lr, const ScheduleOptions& options) {
  return {Schedule::Kind::linear, lr, options};
}
Schedule cosine(double lr, const ScheduleOptions& options) {
  return {Schedule::Kind::cosine, lr, options};
}
Schedule step_decay(double lr, const ScheduleOptions& options) {
  return {Schedule::Kind::step, lr, options};
}
Schedule wsd(double lr, const ScheduleOptions& options) {
  return {Schedule::Kind::wsd, lr, options};
}

std::span<const ScheduleKind> schedule_kinds() { return kinds; }

Schedule make_schedule(std::string_view name, double lr, const ScheduleOptions& options) {
  std::string known;
  for (size_t i = 0; i < std::size(kinds); ++i) {
    if (kinds[i].name == name) return {static_cast<Schedule::Kind>(i), lr, options};
    known += (i ? ", " : "") + std::string(kinds[i].name);
  }
  throw Error(ErrorKind::usage, "[scheduler] unknown schedule \"{}\". Known: {}.", name, known);
}

}  // namespace weft::optim
