// The table of contents of the compiler, and the one wrapper that runs a pass.
#include <algorithm>

#include <fmt/format.h>

#include "weft/base/log.h"
#include "weft/base/stopwatch.h"
#include "weft/passes/passes.h"
#include "weft/passes/steps.h"

namespace weft {
namespace {
constexpr std::string_view optional_passes[] = {"simplify", "chunk", "fuse",
                                                "alias",    "order", "reuse"};

#ifdef WEFT_DEBUG_BUILD
constexpr bool debug_build = true;
#else
constexpr bool debug_build = false;
#endif

// Runs, times (WEFT_DEBUG=1), prints (WEFT_DEBUG=3) and verifies one pass.
class Runner {
 public:
  explicit Runner(const PassOptions& options) : options_(options) {}

  template <class Subject, class Function>
  auto always(std::string_view name, Function pass, Subject&& subject) const {
    Stopwatch watch;
    auto result = pass(std::forward<Subject>(subject), options_);
    log::debug(1, "pass {:<10} {:8.2f} ms", name, watch.milliseconds());
    if (debug_level() >= 3) log::debug(3, "after {}:\n{}", name, to_text(result));
    if (debug_build || options_.verify) verify(result);
    return result;
  }
  template <class Subject, class Function>
  Subject unless_skipped(std::string_view name, Function pass, Subject subject) const {
    if (options_.skips(name)) return subject;
    return always(name, pass, std::move(subject));
  }

 private:
  const PassOptions& options_;
};

// The kernels of a step, with its widest rows in so many parts, in the order of the graph.
Plan cut_into(int chunks, const Graph& step, PassOptions options) {
  options.chunks = chunks;
  Runner run(options);
  const Graph parts = chunks > 1 ? run.always("chunk", chunk, step) : step;
  Plan plan = run.always("schedule", schedule, parts);       // fuses unless "fuse" is skipped
  plan = run.always("alias", alias_state, std::move(plan));  // copies where "alias" is skipped
  return run.always("offload", offload_state, std::move(plan));
}
Plan ordered(Plan plan, const PassOptions& options) {
  return Runner(options).unless_skipped("order", order, std::move(plan));
}
Plan placed(const Plan& plan, const PassOptions& options) {
  return Runner(options).always("memory", fit_memory, plan);  // no reuse where "reuse" is skipped
}

double cost(const Plan& plan) {
  double total = 0;
  for (const Step& step : plan.steps) total += cost(step);
  return total;
}

// The least time that fits the limit: parts, as many as help, and kernels that run again. Those are
// chosen in the order of the graph where rows are cut: there one part comes after another, where
// the order of the least memory may keep all parts for a sum that can wait.
Plan fitting(const Graph& step, const PassOptions& options) {
  PassOptions kept = options;
  kept.recompute = Recompute::none;
  const bool repeats = options.memory == 0 && options.recompute != Recompute::automatic &&
                       options.recompute != Recompute::none;
  std::vector<Plan> plans;
  Plan best;
  const int asked = options.skips("chunk") ? 1 : options.chunks;
  for (int chunks = std::max(1, asked);; chunks *= 2) {
    Plan plan = cut_into(chunks, step, options);
    if (!plans.empty() && plan.steps.size() == plans.back().steps.size()) break;  // no more parts
    Plan in_order = ordered(plan, options);
    best = placed(in_order, kept);
    plans.push_back(chunks > 1 ? std::move(plan) : std::move(in_order));
    if (fits_memory(best, options) || asked > 0) break;
  }
  if (repeats || !fits_memory(best, options)) {
    Plan less = placed(plans.back(), options);
    if (fits_memory(less, options) || less.arena_bytes < best.arena_bytes) best = std::move(less);
  }
  for (plans.pop_back(); !plans.empty() && fits_memory(best, options); plans.pop_back()) {
    Plan fewer = placed(plans.back(), options);
    if (!fits_memory(fewer, options) || cost(fewer) >= cost(best)) break;
    best = std::move(fewer);
  }
  return best;
}
}  // namespace

bool PassOptions::skips(std::string_view pass) const {
  return std::find(skip.begin(), skip.end(), pass) != skip.end();
}

Plan make_plan(const Graph& graph, const PassOptions& options) {
  for (const std::string& name : options.skip)
    WEFT_CHECK(std::ranges::find(optional_passes, name) != std::end(optional_passes),
               "[compile] no pass '{}' to skip. Known: {}.", name,
               fmt::join(optional_passes, ", "));
  Runner run(options);
  Graph step = run.always("precision", precision, graph);
  step = run.always("decompose", decompose, step);
  step = run.unless_skipped("simplify", simplify, std::move(step));
  Plan plan = fitting(step, options);
  check_memory(plan, options);
  if (debug_level() >= 2) log::debug(2, "plan:\n{}", to_text(plan));
  return plan;
}

}  // namespace weft
