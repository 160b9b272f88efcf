#include "weft/cli/estimate/training_estimate.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "weft/base/numbers/quantity.h"
#include "weft/cli/estimate/model_shape.h"
#include "weft/cli/estimate/training_question.h"
#include "weft/device/catalogue.h"
#include "weft/train/experiment.h"
#include "weft/train/run/report.h"

namespace weft::cli {
namespace {
using train::Recipe;

estimate::Costs costs_of(const DevicesOn& on, const estimate::Program& program) {
  return {estimate::device_of(*on.model), program, estimate::shipped_constants()};
}

// Returns the answers; none where the devices do not divide the batch.
estimate::TrainingAnswers answers_of(const estimate::TrainingQuestion& question,
                                     const estimate::Costs& costs) {
  try {
    return choose(question, costs);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::usage) throw;
    return {};
  }
}

// Doubles the devices until a layout of them fits. Returns 0 where none does.
int64_t devices_that_fit(estimate::TrainingQuestion question, const DevicesOn& on,
                         const EstimateFlags& flags) {
  for (question.devices *= 2; question.devices <= most_devices; question.devices *= 2) {
    const estimate::Costs costs = costs_of(on, find_program(flags.as, question.devices));
    if (!answers_of(question, costs).fitting.empty()) return question.devices;
  }
  return 0;
}

// Tries what others do where a run does not fit: narrow state, then few weights that train.
std::vector<Remedy> remedies_of(const estimate::TrainingQuestion& question,
                                const estimate::Costs& costs) {
  std::vector<Remedy> found;
  const auto try_with = [&](std::string text, const auto& change) {
    estimate::TrainingQuestion changed = question;
    change(changed.job);
    changed.recompute = {};
    changed.micro_batch = {};
    const estimate::TrainingAnswers answers = answers_of(changed, costs);
    if (!answers.fitting.empty()) found.push_back({std::move(text), answers.fitting.front()});
  };
  const auto narrow = [](estimate::TrainingJob& job) {
    job.state = {.weights = 2, .gradients = 2, .master = 0, .moments = 4};
    job.tiles_loss = true;
  };
  if (question.job.method == estimate::Method::full) {
    try_with("weights, gradients and moments in 16 bits", narrow);
    try_with("weights and gradients in 16 bits, moments in 8", [&](estimate::TrainingJob& job) {
      narrow(job);
      job.state.moments = 2;
    });
    try_with("the same, updates in the backward pass", [&](estimate::TrainingJob& job) {
      narrow(job);
      job.state.moments = 2;
      job.updates_in_backward = true;
    });
  }
  for (const Method& method : methods())
    if (method.frozen_bytes > 0)
      try_with(fmt::format("--method {}", method.name), [&](estimate::TrainingJob& job) {
        job.tiles_loss = true;
        set_method(job, method);
      });
  return found;
}

// Parses "7d", "36h".
double deadline_of(const std::string& text) {
  const std::pair<char, double> units[] = {{'d', 86400}, {'h', 3600}, {'m', 60}};
  for (const auto& [unit, seconds] : units)
    if (text.ends_with(unit))
      if (const auto number = parse_number(std::string_view(text).substr(0, text.size() - 1));
          number && *number > 0)
        return *number * seconds;
  throw Error(ErrorKind::usage, "--deadline is a time such as 7d or 36h. Got '{}'.", text);
}

double budget_of(const std::string& text) {
  if (const auto usd = parse_number(text); usd && *usd > 0) return *usd;
  throw Error(ErrorKind::usage, "--budget is an amount of USD such as 500. Got '{}'.", text);
}
struct Bounds {
  double seconds = std::numeric_limits<double>::infinity();
  double usd = std::numeric_limits<double>::infinity();
  bool any() const { return std::isfinite(seconds) || std::isfinite(usd); }
};

RunEstimate refused(RunEstimate made, std::string why) {
  made.answers.fitting.clear();
  made.refusal = std::move(why);
  return made;
}

// An Asker answers for any number of devices of any model.
class Asker {
 public:
  Asker(const Recipe& recipe, const EstimateFlags& flags)
      : flags_(flags),
        experiment_(train::make_experiment(recipe, {.initialize = false})),
        shape_(shape_of(*experiment_.model, experiment_.shape,
                        recipe->model.name.value_or(recipe->name))) {}

  RunEstimate answer(const DevicesOn& on) const;
  // Answers for the largest batch that fits without accumulation.
  RunEstimate largest_batch(const DevicesOn& on) const;
  // Answers for the number of devices that costs least within bounds.
  RunEstimate within(const DevicesOn& on, const Bounds& bounds) const;
  void explain_misfit(RunEstimate& made) const;

 private:
  estimate::TrainingQuestion question(const DevicesOn& on, const estimate::Program& program) const {
    return question_of(experiment_, shape_, flags_, program, on);
  }

  const EstimateFlags& flags_;
  train::Experiment experiment_;
  estimate::Shape shape_;
};

RunEstimate Asker::answer(const DevicesOn& on) const {
  const estimate::Program& program = find_program(flags_.as, on.count);
  RunEstimate made{.on = on,
                   .program = program,
                   .units = static_cast<double>(experiment_.global_batch) *
                            static_cast<double>(experiment_.units_per_sample()),
                   .unit = std::string(experiment_.unit()),
                   .updates = experiment_.total_steps,
                   .price = price_of(*on.model, experiment_.recipe),
                   .watts = on.model->power.watts};
  const estimate::TrainingQuestion asked = question(on, program);
  made.memory_bytes = asked.memory_bytes;
  if (const std::string missing = missing_figure(*on.model, asked.job.products, on.count);
      !missing.empty()) {
    made.refusal =
        fmt::format("the catalogue does not know its {}{}", missing,
                    asked.job.products == estimate::Number::bf16 && on.model->dense_tflops.f16 > 0
                        ? ", but f16. Hint: --precision fp16-mixed"
                        : "");
    made.is_known = false;
    return made;
  }
  made.answers = choose(asked, costs_of(on, program));
  return made;
}

RunEstimate Asker::largest_batch(const DevicesOn& on) const {
  RunEstimate made = answer(on);
  if (!made.refusal.empty()) return made;
  estimate::TrainingQuestion asked = question(on, made.program);
  const estimate::Costs costs = costs_of(on, made.program);
  asked.micro_batch = {};
  asked.accumulates = false;
  const double each = made.units / asked.global_batch;  // units of a sample
  made.answers = {};
  const auto fits = [&](double batch) {
    asked.global_batch = batch;
    estimate::TrainingAnswers answers = answers_of(asked, costs);
    if (answers.fitting.empty()) {
      if (made.batches.empty()) made.answers = std::move(answers);
      return false;
    }
    made.batches.push_back({batch, batch * each / answers.fitting.front().time.seconds});
    made.answers = std::move(answers);
    made.units = batch * each;
    return true;
  };
  const auto devices = static_cast<double>(on.count);
  constexpr double most_samples = 1 << 20;  // of a device
  double batch = devices;
  while (batch <= most_samples * devices && fits(batch)) batch *= 2;
  double low = batch / 2, high = batch;  // the largest is in between
  while (!made.batches.empty() && high - low > devices) {
    const double middle = std::floor((low + high) / 2 / devices) * devices;
    (fits(middle) ? low : high) = middle;
  }
  std::ranges::sort(made.batches, {}, &BatchRate::batch);
  // The run sees as many samples as with the recipe's batch.
  if (!made.batches.empty())
    made.updates = static_cast<int64_t>(std::ceil(static_cast<double>(made.updates) *
                                                  static_cast<double>(experiment_.global_batch) /
                                                  made.batches.back().batch));
  return made;
}

RunEstimate Asker::within(const DevicesOn& on, const Bounds& bounds) const {
  std::optional<RunEstimate> best;
  std::string closest;  // the quickest to a deadline, the cheapest to a budget
  double nearest = std::numeric_limits<double>::infinity();
  const int64_t most = on.is_counted ? on.count : most_devices;
  for (int64_t count = on.count; count <= most; count *= 2) {
    RunEstimate made;
    try {
      made = answer({on.model, count, on.is_counted});
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::usage || count == on.count) throw;
      break;  // so many do not divide the batch
    }
    if (!made.refusal.empty() || (on.is_counted && !made.fits())) return made;
    if (!made.fits()) continue;
    if (std::isfinite(bounds.usd) && made.price.usd == 0)
      return refused(std::move(made),
                     "the catalogue knows no price of it. Hint: --plan.usd_per_hour");
    const double usd = made.device_hours() * made.price.usd;
    const double distance = std::isfinite(bounds.seconds) ? made.seconds() : made.device_hours();
    if (distance < nearest) {
      nearest = distance;
      closest = fmt::format("{} take {}", count, train::time_text(made.seconds()));
      if (usd > 0) closest += fmt::format(" and {}", train::cost_text(usd));
    }
    if (made.seconds() > bounds.seconds || usd > bounds.usd) continue;
    if (!best || made.device_hours() < best->device_hours()) best = std::move(made);
  }
  if (best) return std::move(*best);
  return refused(answer(on),
                 closest.empty()
                     ? fmt::format("the run fits on no number of them up to {}", most)
                     : fmt::format("the run misses its deadline or budget: {}", closest));
}

void Asker::explain_misfit(RunEstimate& made) const {
  const estimate::TrainingQuestion asked = question(made.on, made.program);
  made.devices_that_fit = devices_that_fit(asked, made.on, flags_);
  made.remedies = remedies_of(asked, costs_of(made.on, made.program));
}
}  // namespace

std::vector<RunEstimate> estimate_training(const Recipe& recipe, const EstimateFlags& flags,
                                           const std::vector<DevicesOn>& devices) {
  Bounds bounds;
  if (!flags.deadline.empty()) bounds.seconds = deadline_of(flags.deadline);
  if (!flags.budget.empty()) bounds.usd = budget_of(flags.budget);
  const Asker asker(recipe, flags);
  std::vector<RunEstimate> all;
  for (const DevicesOn& on : devices) try {
      all.push_back(flags.largest_batch ? asker.largest_batch(on)
                    : bounds.any()      ? asker.within(on, bounds)
                                        : asker.answer(on));
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::usage || devices.size() == 1) throw;
      all.push_back({.on = on, .refusal = error.what()});
    }
  if (devices.size() == 1 && !all.front().fits() && all.front().refusal.empty())
    asker.explain_misfit(all.front());
  std::ranges::stable_sort(all, {}, [](const RunEstimate& made) {
    return std::pair(!made.fits(), made.fits() ? made.seconds() : 0);
  });
  return all;
}

}  // namespace weft::cli
