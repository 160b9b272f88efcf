#include "weft/train/advice.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "weft/base/error.h"
#include "weft/base/memory.h"
#include "weft/base/stopwatch.h"
#include "weft/train/trainer.h"

namespace weft::train {
namespace {
constexpr double patience = 1000;  // ms; what is being planned then is still finished

using Settings = std::vector<std::pair<std::string, std::string>>;  // keys of the recipe

struct Change {
  std::string flags;
  double seconds;  // of an update; 0: unknown
};

Recipe with(Recipe recipe, const Settings& settings) {
  for (const auto& [key, value] : settings) recipe.set(key, value, "advice");
  return recipe;
}

// Of an update; nullopt where the step does not fit.
std::optional<double> planned_seconds(const Recipe& recipe, const MachineSpec& machine) {
  try {
    return PlannedRun(recipe, machine).report.seconds;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::does_not_fit) throw;
    return std::nullopt;
  }
}

class Search {
 public:
  Search(const Recipe& recipe, const MachineSpec& machine) : recipe_(recipe), machine_(machine) {
    if (!recipe_.has("train.memory"))
      recipe_.set("train.memory", std::to_string(available_memory() + resident_memory()), "advice");
  }

  std::vector<Change> run() {
    if (recipe_.text("train.recompute") == "none") attempt({{"train.recompute", "auto"}});
    const bool wide = recipe_.text("train.precision") == "fp32";
    const Settings narrow{{"train.precision", "bf16-mixed"}};
    const bool fits = wide && attempt(narrow);
    smaller_batches({});
    if (wide && !fits) smaller_batches(narrow);
    std::ranges::stable_sort(found_, {}, &Change::seconds);
    return found_;
  }

 private:
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

  bool attempt(const Settings& settings) {
    if (watch_.milliseconds() >= patience) return false;
    const auto seconds = planned_seconds(with(recipe_, settings), machine_);
    if (!seconds) return false;
    std::string flags;
    for (const auto& [key, value] : settings) flags += fmt::format(" --{} {}", key, value);
    found_.push_back({flags.substr(1), *seconds});
    return true;
  }

  Recipe recipe_;
  const MachineSpec& machine_;
  Stopwatch watch_;
  std::vector<Change> found_;
};
}  // namespace

std::string changes_that_fit(const Recipe& recipe, const MachineSpec& machine) {
  const std::vector<Change> changes = Search(recipe, machine).run();
  if (changes.empty())
    return "No smaller micro-batch, bfloat16 or recomputation fits there that could be found in a "
           "second.";
  const double before =
      planned_seconds(with(recipe, {{"train.memory", "8000TiB"}}), machine).value_or(0);
  std::string text;
  for (const Change& change : changes) {
    text += text.empty() ? "Hint: " : ", ";
    text += change.flags + " fits";
    if (before > 0) text += fmt::format(" at {:.2f} times the time", change.seconds / before);
  }
  return text + ".";
}

}  // namespace weft::train
