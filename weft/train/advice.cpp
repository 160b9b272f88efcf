#include "weft/train/advice.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "weft/base/env.h"
#include "weft/base/error.h"
#include "weft/base/quantity.h"
#include "weft/train/precision.h"
#include "weft/train/report.h"
#include "weft/train/trainer.h"

namespace weft::train {
namespace {
using Clock = std::chrono::steady_clock;
// Of WEFT_PATIENCE: since the plan began that failed, or since it failed, if that is later. A plan
// that is begun before then is made whole.
constexpr double share = 0.7, least_share = 0.2;

using Settings = std::vector<std::pair<std::string, std::string>>;  // keys of the recipe

const Settings state_in_files{{"train.offload", "[parameters, optimizer]"}};
// Each entry shrinks the optimizer state or moves it out of memory; the least change comes first.
const Settings less_state[] = {{{"train.precision", "bf16"}},
                               {{"train.offload", "[optimizer]"}},
                               {{"train.precision", "bf16"}, {"train.offload", "[optimizer]"}},
                               state_in_files};

struct Change {
  std::string flags;
  double seconds;  // of an update; 0: unknown
};

// "--train.precision bf16-mixed --train.micro_batch_size 4"
std::string flags_of(const Settings& settings) {
  std::string flags;
  for (const auto& [key, value] : settings)
    flags += fmt::format(" --{0} {2}{1}{2}", key, value, value.front() == '[' ? "'" : "");
  return flags.substr(1);
}

Recipe with(Recipe recipe, const Settings& settings) {
  for (const auto& [key, value] : settings) recipe.set(key, value, "advice");
  return recipe;
}

Clock::duration seconds_of(double part) {
  return std::chrono::duration_cast<Clock::duration>(
      std::chrono::duration<double>(part * env_patience()));
}

class Search {
 public:
  Search(const Recipe& recipe, const MachineSpec& machine, Clock::time_point began)
      : recipe_(recipe),
        machine_(machine),
        until_(std::max(began + seconds_of(share), Clock::now() + seconds_of(least_share))) {}

  // Bytes of model and optimiser in memory; 0: they fit.
  int64_t state_that_exceeds(const Settings& settings) const {
    const Experiment experiment = make_experiment(with(recipe_, settings), {.initialize = false});
    const int64_t state = experiment.kept_model_bytes() + experiment.kept_optimizer_bytes();
    return state > parse_bytes(recipe_.text("train.memory")).value_or(0) ? state : 0;
  }

  // Of an update; nullopt where the step does not fit, or where there is no time to plan it.
  std::optional<double> seconds(const Settings& settings) const {
    if (out_of_time()) return std::nullopt;
    try {
      return PlannedRun(with(recipe_, settings), machine_, {.until = until_}).report.seconds;
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::does_not_fit) throw;
      return std::nullopt;
    }
  }

  bool out_of_time() const { return Clock::now() > until_; }

  // Of an update in as much memory as it likes; 0: there was no time to plan it.
  double before() const { return before_.value_or(0); }

  // This search is for recipes whose state alone exceeds the limit: the batch does not matter
  // there.
  std::vector<Change> run_for_state() {
    for (const Settings& settings : less_state)
      if (is_allowed(settings) && state_that_exceeds(settings) == 0 && !attempt(settings))
        smaller_batches(settings);
    return by_time();
  }

  std::vector<Change> run() {
    if (recipe_.text("train.recompute") == "none") attempt({{"train.recompute", "auto"}});
    smaller_batches({});
    if (clips()) attempt({{"train.grad_clip", "0"}});
    const Settings narrow{{"train.precision", "bf16-mixed"}};
    if (recipe_.text("train.precision") == "fp32" && !attempt(narrow)) smaller_batches(narrow);
    const bool wide = find_precision(recipe_.text("train.precision"))->parameters == DType::f32;
    if (wide && recipe_.text("train.keep") == "fp32") attempt({{"train.keep", "bf16"}});
    if (recipe_.texts("train.offload").empty()) attempt(state_in_files);
    return by_time();
  }

 private:
  // A change may contradict another key of the recipe, as bfloat16 parameters do `train.keep`.
  bool is_allowed(const Settings& settings) const {
    try {
      with(recipe_, settings).check();
    } catch (const Error&) {
      return false;
    }
    return true;
  }
  // Whether the recipe says so already.
  bool has(const std::pair<std::string, std::string>& setting) const {
    return with(recipe_, {setting}).to_yaml(setting.first) == recipe_.to_yaml(setting.first);
  }

  // A norm of all gradients keeps each of them until the last is there.
  bool clips() const {
    return recipe_.has("train.grad_clip") && recipe_.number("train.grad_clip") > 0;
  }

  std::vector<Change> by_time() {
    std::ranges::stable_sort(found_, {}, &Change::seconds);
    return found_;
  }

  // The largest micro-batch that fits, about half of the one before each time.
  void smaller_batches(const Settings& others) {
    const int64_t whole = recipe_.integer("train.global_batch_size");
    const int64_t now =
        recipe_.has("train.micro_batch_size") ? recipe_.integer("train.micro_batch_size") : whole;
    for (int64_t batch = now / 2; batch > 0; batch /= 2) {
      while (whole % batch != 0) --batch;
      Settings settings = others;
      settings.emplace_back("train.micro_batch_size", std::to_string(batch));
      if (recipe_.has("eval.batch_size") && recipe_.integer("eval.batch_size") > batch)
        settings.emplace_back("eval.batch_size", std::to_string(batch));
      if (attempt(settings)) return;
    }
  }

  bool attempt(Settings settings) {
    std::erase_if(settings, [&](const auto& setting) { return has(setting); });
    if (settings.empty() || !is_allowed(settings)) return false;
    const std::string flags = flags_of(settings);
    if (std::ranges::find(found_, flags, &Change::flags) != found_.end()) return true;
    const auto planned = seconds(settings);
    if (!planned) return false;
    if (!before_) before_ = seconds({{"train.memory", "8000TiB"}});
    found_.push_back({flags, *planned});
    return true;
  }

  Recipe recipe_;
  const MachineSpec& machine_;
  Clock::time_point until_;
  std::vector<Change> found_;
  std::optional<double> before_;
};
}  // namespace

std::string changes_that_fit(const Recipe& recipe, const MachineSpec& machine,
                             std::chrono::steady_clock::time_point began) {
  Search search(recipe, machine, began);
  std::string text;
  const int64_t state = search.state_that_exceeds({});
  if (state > 0)
    text = fmt::format("Parameters and optimizer alone take {} of memory, whatever the batch. ",
                       bytes_text(static_cast<double>(state)));
  const std::vector<Change> changes = state > 0 ? search.run_for_state() : search.run();
  if (changes.empty() && !search.out_of_time())
    return text + "Neither smaller micro-batches, bfloat16, recomputation nor offload fits there.";
  if (changes.empty())
    return text + fmt::format(
                      "No smaller micro-batch, bfloat16, recomputation or offload that fits there "
                      "was found in time. Hint: WEFT_PATIENCE={} looks for longer.",
                      10 * std::max(1, env_patience()));
  const double before = search.before();
  text += "Hint: ";
  std::string_view between;
  for (const Change& change : changes) {
    text += fmt::format("{}{} fits", std::exchange(between, ", "), change.flags);
    if (before > 0) text += fmt::format(" at {:.2f} times the time", change.seconds / before);
  }
  return text + ".";
}

}  // namespace weft::train
