#include "weft/train/plan/advice.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "weft/base/error.h"
#include "weft/base/host/env.h"
#include "weft/base/host/stopwatch.h"
#include "weft/base/numbers/quantity.h"
#include "weft/train/plan/precision.h"
#include "weft/train/run/report.h"
#include "weft/train/run/trainer.h"

namespace weft::train {
namespace {
// The search takes these shares of WEFT_PATIENCE, counted from the start of the failed plan, and
// from its failure if that is later. A plan that is begun before then is completed.
constexpr double share = 0.7, least_share = 0.2;

using NewValues =
    std::vector<std::pair<std::string_view, std::string>>;  // keys, and their new values

const NewValues state_in_files{{keys::train::offload, "[parameters, optimizer]"}};
// Each entry shrinks the state or moves it out of memory. The entry with the largest effect comes
// first, as time may run out before the others, which are ordered from the smallest change up.
const NewValues less_state[] = {
    {{keys::train::precision, "bf16"}, state_in_files.front()},
    {{keys::train::precision, "bf16"}},
    {{keys::train::offload, "[optimizer]"}},
    {{keys::train::precision, "bf16"}, {keys::train::offload, "[optimizer]"}},
    state_in_files};

struct Change {
  std::string flags;
  double seconds;  // seconds of an update; 0: unknown
};

// Returns "--train.precision bf16-mixed --train.micro_batch_size 4"; a flag of the command line is
// named as the user typed it, as its new value replaces the old one.
std::string flags_of(const Recipe& recipe, const NewValues& settings) {
  std::string flags;
  for (const auto& [key, value] : settings) {
    const std::string& typed = recipe.where(key);
    flags += fmt::format(" {0} {2}{1}{2}", typed.starts_with("--") ? typed : fmt::format("--{}", key), value,
                         value.front() == '[' ? "'" : "");
  }
  return flags.substr(1);
}

Recipe with(Recipe recipe, const NewValues& settings) {
  for (const auto& [key, value] : settings) recipe.set(key, value, "advice");
  return recipe;
}

class Search {
 public:
  // `before` is the seconds of an update to compare with; nullopt: those of an update without a
  // memory limit.
  Search(const Recipe& recipe, const MachineSpec& machine, size_t has, double began,
         std::optional<double> before = {})
      : recipe_(recipe),
        machine_(machine),
        has_(has),
        before_(before),
        until_(std::max(began + share * env_patience(),
                        processor_seconds() + least_share * env_patience())) {}

  // Returns the bytes of model and optimizer in memory if they exceed the limit, else 0.
  int64_t state_that_exceeds(const NewValues& settings) const {
    const Experiment experiment = make_experiment(with(recipe_, settings), {.initialize = false});
    const int64_t state = experiment.kept_model_bytes() + experiment.kept_optimizer_bytes() +
                          experiment.kept_teacher_bytes();
    const std::optional<int64_t> limit = recipe_->train.memory;
    return state > limit.value_or(0) ? state : 0;
  }

  // Returns the seconds of an update; nullopt where the run does not fit, or where no time is left
  // to plan it.
  std::optional<double> seconds(const NewValues& settings) const { return seconds(settings, has_); }

  bool out_of_time() const { return processor_seconds() > until_; }

  // Returns 0 where there was no time to plan it.
  double before() const { return before_.value_or(0); }

  // Searches changes for recipes whose state alone exceeds the limit, where the batch does not
  // matter.
  std::vector<Change> run_for_state() {
    for (const NewValues& settings : less_state)
      if (is_allowed(settings) && state_that_exceeds(settings) == 0 && !attempt(settings))
        smaller_batches(settings);
    return by_time();
  }

  // Tries changes that take one plan each before batches, and the one most likely to fit first, as
  // time may run out among the batches.
  std::vector<Change> run() {
    const bool wide = find_precision(recipe_->train.precision)->parameters == DType::f32;
    // GPUs before Ampere multiply in float16 alone.
    const bool only_f16 = machine_.f16_flops_per_s > 0 && machine_.bf16_flops_per_s == 0;
    if (wide && !only_f16) attempt({{keys::train::precision, "bf16"}});
    if (recipe_->train.offload.empty()) attempt(state_in_files);
    if (recipe_->train.recompute != Recompute::automatic)
      attempt({{keys::train::recompute, "auto"}});
    if (clips()) attempt({{keys::train::grad_clip, "0"}});
    const NewValues narrow{{keys::train::precision, only_f16 ? "fp16-mixed" : "bf16-mixed"}};
    const bool narrows = recipe_->train.precision == "fp32" && attempt(narrow);
    if (wide && recipe_->train.keep == DType::f32) attempt({{keys::train::keep, "bf16"}});
    smaller_batches({});
    if (wide && !narrows) smaller_batches(narrow);
    if (found_.empty()) smaller_batches(state_in_files);
    if (found_.empty() && wide) smaller_batches({narrow.front(), state_in_files.front()});
    return by_time();
  }

 private:
  // Plans as for a user who types these flags: within the device's memory only where the plan would
  // not fit otherwise.
  std::optional<double> seconds(const NewValues& settings, size_t has) const {
    if (out_of_time()) return std::nullopt;
    const Recipe limited = with(recipe_, settings);
    if (has > 0 && limited.where(keys::train::memory) == limit_origin) {
      const auto typed =
          plan_that_fits(with(limited, {{keys::train::memory, "null"}}), machine_, has, until_);
      if (typed != nullptr) return typed->report.expected_seconds();
      if (out_of_time()) return std::nullopt;
    }
    const auto planned = plan_that_fits(limited, machine_, has, until_);
    return planned == nullptr ? std::nullopt : std::optional(planned->report.expected_seconds());
  }
  // Returns whether a change is consistent with the other keys: bfloat16 parameters contradict
  // `train.keep`.
  bool is_allowed(const NewValues& settings) const {
    try {
      with(recipe_, settings).check();
    } catch (const Error&) {
      return false;
    }
    return true;
  }
  // Returns whether the recipe has this value already.
  bool has(const NewValues::value_type& setting) const {
    return with(recipe_, {setting}).to_yaml(setting.first) == recipe_.to_yaml(setting.first);
  }

  // Returns whether gradients are clipped: the norm of all gradients keeps each live until the last
  // is computed.
  bool clips() const { return recipe_->train.grad_clip.value_or(0) > 0; }

  std::vector<Change> by_time() {
    std::ranges::stable_sort(found_, {}, &Change::seconds);
    return found_;
  }

  // Finds the largest micro-batch that fits, halving it about each time. If the smallest does not
  // fit, none does.
  void smaller_batches(const NewValues& others) {
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
    if (smaller.empty()) return;
    const std::optional<double> least = planned(smaller.back());
    if (!least) return;
    for (const NewValues& settings : smaller)
      if (&settings != &smaller.back() && attempt(settings)) return;
    add(smaller.back(), *least);
  }

  // Returns the settings that differ from the recipe; empty where they contradict another of its
  // keys.
  NewValues changed(NewValues settings) const {
    std::erase_if(settings, [&](const auto& setting) { return has(setting); });
    return is_allowed(settings) ? settings : NewValues{};
  }
  std::optional<double> planned(const NewValues& settings) const {
    const NewValues changes = changed(settings);
    return changes.empty() ? std::nullopt : seconds(changes);
  }
  bool attempt(const NewValues& settings) {
    const std::optional<double> time = planned(settings);
    if (time) add(settings, *time);
    return time.has_value();
  }
  void add(const NewValues& settings, double time) {
    const std::string flags = flags_of(recipe_, changed(settings));
    if (std::ranges::find(found_, flags, &Change::flags) != found_.end()) return;
    found_.push_back({flags, time});
    if (!before_)
      before_ =
          seconds({{keys::train::memory, "8000TiB"}, {keys::train::recompute, "none"}}, /*has=*/0);
  }

  Recipe recipe_;
  const MachineSpec& machine_;
  size_t has_;
  std::optional<double> before_;
  double until_;
  std::vector<Change> found_;
};

// Returns "--train.keep bf16 fits at 1.10 times the time, ...".
std::string text_of(const std::vector<Change>& changes, double before) {
  std::string text;
  std::string_view between;
  for (const Change& change : changes) {
    text += fmt::format("{}{} fits", std::exchange(between, ", "), change.flags);
    if (before > 0) text += fmt::format(" at {:.2f} times the step time", change.seconds / before);
  }
  return text + ".";
}
}  // namespace

std::string changes_that_fit(const Recipe& recipe, const MachineSpec& machine, size_t has,
                             double began) {
  Search search(recipe, machine, has, began);
  std::string text;
  const int64_t state = search.state_that_exceeds({});
  if (state > 0)
    text = fmt::format("Parameters and optimizer alone take {} of memory, whatever the batch. ",
                       bytes_text(static_cast<double>(state)));
  const std::vector<Change> changes = state > 0 ? search.run_for_state() : search.run();
  if (changes.empty() && !search.out_of_time())
    return text + "No smaller micro-batch, lower precision, recomputation or offload makes it fit.";
  const std::string longer =
      fmt::format("WEFT_PATIENCE={} searches longer.", 10 * std::max(1, env_patience()));
  if (changes.empty())
    return text +
           "No smaller micro-batch, lower precision, recomputation or offload that fits was found "
           "in time. Hint: " +
           longer;
  return text + "Hint: " + text_of(changes, search.before()) +
         (search.out_of_time() ? " There may be more: " + longer : "");
}

std::string quicker_changes(const Recipe& recipe, const MachineSpec& machine, size_t has,
                            double began, double seconds) {
  constexpr double clearly = 0.95;
  Search search(recipe, machine, has, began, seconds);
  std::vector<Change> changes = search.run();
  std::erase_if(changes, [&](const Change& change) { return change.seconds > clearly * seconds; });
  return changes.empty() ? "" : "Quicker: " + text_of(changes, seconds);
}

}  // namespace weft::train
