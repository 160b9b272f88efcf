#include "weft/train/plan/advice.h"

#include <algorithm>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "weft/base/error.h"
#include "weft/base/host/env.h"
#include "weft/base/host/stopwatch.h"
#include "weft/base/numbers/quantity.h"
#include "weft/device/registry.h"
#include "weft/planner/planner.h"
#include "weft/train/plan/plan_run.h"
#include "weft/train/plan/precision.h"

namespace weft::train {
namespace {
// The search takes these shares of WEFT_PATIENCE, counted from the start of the failed plan, and
// from its failure if that is later. A plan that is begun before then is completed.
constexpr double share = 0.7, least_share = 0.2;

using NewValues =
    std::vector<std::pair<std::string_view, std::string>>;  // keys, and their new values

const NewValues saves_that_wait{{keys::checkpoint::beside, "false"}};
const NewValues state_in_files{{keys::train::offload, "[parameters, optimizer]"}};
// Each entry shrinks the state or moves it out of memory. The entry with the largest effect comes
// first, as time may run out before the others, which are ordered from the smallest change up.
const NewValues less_state[] = {
    {{keys::train::precision, "bf16"}, state_in_files.front()},
    {{keys::train::precision, "bf16"}},
    {{keys::train::offload, "[optimizer]"}},
    {{keys::train::precision, "bf16"}, {keys::train::offload, "[optimizer]"}},
    state_in_files};

// Returns "--train.precision bf16-mixed --train.micro_batch_size 4"; a flag of the command line is
// named as the user typed it, as its new value replaces the old one.
std::string flags_of(const Recipe& recipe, const NewValues& settings) {
  std::string flags;
  for (const auto& [key, value] : settings) {
    const std::string& typed = recipe.where(key);
    flags +=
        fmt::format(" {0} {2}{1}{2}", typed.starts_with("--") ? typed : fmt::format("--{}", key),
                    value, value.front() == '[' ? "'" : "");
  }
  return flags.substr(1);
}

// Alternatives are the changes of a recipe that may make it fit, as questions. A change of options
// alone asks about the steps that were captured already; others are captured once.
class Alternatives {
 public:
  explicit Alternatives(const RunQuestion& run) : run_(run), recipe_(run.experiment.recipe) {}

  // Returns changes for runs whose state alone exceeds the limit, where the batch does not matter.
  std::vector<Ladder> for_state() {
    std::vector<Ladder> ladders;
    add(ladders, {saves_that_wait});
    for (const NewValues& values : less_state) {
      const int at = add(ladders, {values});
      add(ladders, smaller_batches(values), {.unless = at});
    }
    return ladders;
  }

  // Returns changes that take one plan each before smaller batches, which take several, and the
  // change that is most likely to fit first, as time may run out among the batches.
  std::vector<Ladder> for_steps() {
    std::vector<Ladder> ladders;
    add(ladders, {saves_that_wait});
    const bool wide = find_precision(recipe_->train.precision)->parameters == DType::f32;
    // GPUs before Ampere multiply in float16 alone.
    const MachineSpec& machine = run_.question.machine;
    const bool only_f16 = machine.f16_flops_per_s > 0 && machine.bf16_flops_per_s == 0;
    if (wide && !only_f16) add(ladders, {{{keys::train::precision, "bf16"}}});
    if (recipe_->train.offload.empty()) add(ladders, {state_in_files});
    if (recipe_->train.recompute != Recompute::automatic)
      add(ladders, {{{keys::train::recompute, "auto"}}});
    if (clips()) add(ladders, {{{keys::train::grad_clip, "0"}}});
    const NewValues narrow{{keys::train::precision, only_f16 ? "fp16-mixed" : "bf16-mixed"}};
    const int narrows = recipe_->train.precision == "fp32" ? add(ladders, {narrow}) : -1;
    if (wide && recipe_->train.keep == DType::f32) add(ladders, {{{keys::train::keep, "bf16"}}});
    add(ladders, smaller_batches({}));
    if (wide) add(ladders, smaller_batches(narrow), {.unless = narrows});
    constexpr auto last = Ladder::When::nothing_fits_yet;
    add(ladders, smaller_batches(state_in_files), {.when = last});
    if (wide)
      add(ladders, smaller_batches({narrow.front(), state_in_files.front()}), {.when = last});
    return ladders;
  }

 private:
  // Appends a ladder of the changes that change something and contradict no other key, and returns
  // its place.
  int add(std::vector<Ladder>& ladders, const std::vector<NewValues>& changes, Ladder ladder = {}) {
    for (const NewValues& values : changes)
      if (const NewValues made = changed(values); !made.empty())
        ladder.changes.push_back({flags_of(recipe_, made), [this, made] { return with(made); }});
    ladders.push_back(std::move(ladder));
    return static_cast<int>(ladders.size()) - 1;
  }

  Recipe recipe_with(const NewValues& values) const {
    Recipe recipe = recipe_;
    for (const auto& [key, value] : values) recipe.set(key, value, "advice");
    return recipe;
  }
  // Returns the values that differ from the recipe's; empty where they contradict another of its
  // keys: bfloat16 parameters contradict `train.keep`.
  NewValues changed(NewValues values) const {
    std::erase_if(values, [&](const auto& value) {
      return recipe_with({value}).to_yaml(value.first) == recipe_.to_yaml(value.first);
    });
    try {
      recipe_with(values).check();
    } catch (const Error&) {
      return {};
    }
    return values;
  }

  PlanQuestion with(const NewValues& values) {
    NewValues of_graph = values;
    std::erase_if(of_graph, [](const auto& value) {
      return value.first == keys::train::offload || value.first == keys::train::recompute ||
             value.first == keys::train::keep || value.first == keys::checkpoint::beside;
    });
    const RunQuestion* asked = &run_;
    if (!of_graph.empty()) {
      const auto [known, is_new] = asked_.try_emplace(flags_of(recipe_, of_graph));
      if (is_new)
        known->second =
            std::make_unique<RunQuestion>(ask(recipe_with(of_graph), run_.question.machine));
      asked = known->second.get();
    }
    PlanQuestion question = asked->question;
    const Recipe recipe = recipe_with(values);
    question.options = step_options(asked->experiment, question.options.device, recipe);
    question.snapshot_bytes = asked->experiment.snapshot_bytes(recipe);
    // The limit that was found is what the snapshot leaves.
    if (run_.is_limit_found && library(question.device).on_host())
      question.options.memory += run_.question.snapshot_bytes - question.snapshot_bytes;
    return question;
  }

  // Returns whether gradients are clipped: the norm of all gradients keeps each live until the last
  // is computed.
  bool clips() const { return recipe_->train.grad_clip.value_or(0) > 0; }

  // Returns `others` with ever smaller micro-batches, each about half as large as the previous one.
  std::vector<NewValues> smaller_batches(const NewValues& others) const {
    const int64_t whole = recipe_->train.global_batch_size;
    const int64_t now = recipe_->train.micro_batch_size.value_or(whole);
    std::vector<NewValues> smaller;
    for (int64_t batch = now / 2; batch > 0; batch /= 2) {
      while (whole % batch != 0) --batch;
      smaller.push_back(others);
      smaller.back().emplace_back(keys::train::micro_batch_size, std::to_string(batch));
      if (recipe_->eval.batch_size.value_or(0) > batch)
        smaller.back().emplace_back(keys::eval::batch_size, std::to_string(batch));
    }
    return smaller;
  }

  const RunQuestion& run_;
  const Recipe& recipe_;
  std::map<std::string, std::unique_ptr<RunQuestion>> asked_;  // by the flags that change graphs
};

SearchLimits limits_of(size_t has, double began) {
  return {.has = has,
          .until = std::max(began + share * env_patience(),
                            processor_seconds() + least_share * env_patience())};
}

// Returns "--train.keep bf16 fits at 1.10 times the time, ...".
std::string text_of(const std::vector<Remedy>& changes, double before) {
  std::string text;
  std::string_view between;
  for (const Remedy& change : changes) {
    text += fmt::format("{}{} fits", std::exchange(between, ", "), change.what);
    if (before > 0) text += fmt::format(" at {:.2f} times the step time", change.seconds / before);
  }
  return text + ".";
}
}  // namespace

std::string changes_that_fit(const RunQuestion& run, size_t has, double began,
                             double whole_seconds) {
  const SearchLimits limits = limits_of(has, began);
  Alternatives alternatives(run);
  PlanQuestion question = run.question;
  std::string text;
  const size_t state = question.resident_state();
  const bool exceeds = state > question.options.memory;
  if (exceeds)
    text = fmt::format("Parameters and optimizer alone take {} of memory, whatever the batch. ",
                       bytes_text(static_cast<double>(state)));
  question.may_change = exceeds ? alternatives.for_state() : alternatives.for_steps();
  const Remedies remedies = find_remedies(question, run.is_limit_found, limits);
  if (remedies.found.empty() && !remedies.is_out_of_time)
    return text + "No smaller micro-batch, lower precision, recomputation or offload makes it fit.";
  const std::string longer =
      fmt::format("WEFT_PATIENCE={} searches longer.", 10 * std::max(1, env_patience()));
  if (remedies.found.empty())
    return text +
           "No smaller micro-batch, lower precision, recomputation or offload that fits was found "
           "in time. Hint: " +
           longer;
  return text + "Hint: " + text_of(remedies.found, whole_seconds) +
         (remedies.is_out_of_time ? " There may be more: " + longer : "");
}

std::string quicker_changes(const RunQuestion& run, size_t has, double began, double seconds) {
  constexpr double clearly = 0.95;
  Alternatives alternatives(run);
  PlanQuestion question = run.question;
  question.may_change = alternatives.for_steps();
  std::vector<Remedy> changes =
      find_remedies(question, run.is_limit_found, limits_of(has, began)).found;
  std::erase_if(changes, [&](const Remedy& change) { return change.seconds > clearly * seconds; });
  return changes.empty() ? "" : "Quicker: " + text_of(changes, seconds);
}

}  // namespace weft::train
