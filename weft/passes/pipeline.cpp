// The table of contents of the compiler, and the one wrapper that runs a pass.
#include <algorithm>

#include <fmt/format.h>

#include "weft/base/log.h"
#include "weft/base/stopwatch.h"
#include "weft/passes/passes.h"

namespace weft {
namespace {
constexpr std::string_view optional_passes[] = {"simplify", "fuse", "alias", "order", "reuse"};

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
  Plan plan = run.always("schedule", schedule, step);        // fuses unless "fuse" is skipped
  plan = run.always("alias", alias_state, std::move(plan));  // copies where "alias" is skipped
  plan = run.unless_skipped("order", order, std::move(plan));
  plan = run.always("memory", fit_memory, std::move(plan));  // no reuse where "reuse" is skipped
  if (debug_level() >= 2) log::debug(2, "plan:\n{}", to_text(plan));
  return plan;
}

}  // namespace weft
