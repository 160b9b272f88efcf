// Searches the changes with which a run fits, or takes less time, and says their price.
#include <algorithm>
#include <set>
#include <utility>

#include "weft/base/error.h"
#include "weft/base/host/stopwatch.h"
#include "weft/planner/planner.h"

namespace weft {
namespace {
constexpr size_t no_limit = size_t{8000} << 40;  // a limit that every step fits

class Search {
 public:
  Search(const PlanQuestion& question, bool is_ours, const SearchLimits& limits,
         std::optional<double> before)
      : question_(question), is_ours_(is_ours), limits_(limits), before_(before) {}

  Remedies run(const std::vector<Ladder>& ladders) {
    std::set<int> fit;  // the ladders of which a change fits
    for (int at = 0; at < static_cast<int>(ladders.size()); ++at) {
      const Ladder& ladder = ladders[static_cast<size_t>(at)];
      if (fit.contains(ladder.unless)) continue;
      if (ladder.when == Ladder::When::nothing_fits_yet && !found_.empty()) continue;
      if (climb(ladder)) fit.insert(at);
    }
    std::ranges::stable_sort(found_, {}, &Remedy::seconds);
    return {std::move(found_), before_.value_or(0), is_out_of_time()};
  }

 private:
  bool is_out_of_time() const { return processor_seconds() > limits_.until; }

  // Returns whether a change of the ladder fits.
  bool climb(const Ladder& ladder) {
    if (ladder.changes.empty()) return false;
    const Change& last = ladder.changes.back();
    const std::optional<double> least = seconds(last);
    if (!least) return false;
    for (const Change& change : ladder.changes) {
      if (&change == &last) break;
      if (const std::optional<double> time = seconds(change)) {
        add(change, *time);
        return true;
      }
    }
    add(last, *least);
    return true;
  }

  // Returns the seconds of an update; nullopt where the run does not fit, or where no time is left
  // to plan it.
  std::optional<double> seconds(const Change& change) const {
    if (is_out_of_time()) return std::nullopt;
    PlanQuestion question = change.question();
    question.options.until = limits_.until;
    if (question.options.memory > 0 && question.resident_state() > question.options.memory)
      return std::nullopt;
    if (limits_.has > 0 && is_ours_) {
      PlanQuestion typed = question;
      typed.options.memory = 0;
      if (const auto found = answer_within(typed, limits_.has)) return found->expected_seconds();
      if (is_out_of_time()) return std::nullopt;
    }
    const auto found = answer_within(question, limits_.has);
    return found ? std::optional(found->expected_seconds()) : std::nullopt;
  }

  void add(const Change& change, double time) {
    if (std::ranges::find(found_, change.what, &Remedy::what) != found_.end()) return;
    found_.push_back({change.what, time});
    if (before_ || is_out_of_time()) return;
    PlanQuestion unlimited = question_;
    unlimited.options.memory = no_limit;
    unlimited.options.recompute = Recompute::none;
    unlimited.options.until = limits_.until;
    if (const auto whole = answer_within(unlimited, 0)) before_ = whole->expected_seconds();
  }

  const PlanQuestion& question_;
  bool is_ours_;
  SearchLimits limits_;
  std::optional<double> before_;
  std::vector<Remedy> found_;
};
}  // namespace

Remedies find_remedies(const PlanQuestion& question, const std::vector<Ladder>& ladders,
                       bool is_ours, const SearchLimits& limits, std::optional<double> before) {
  return Search(question, is_ours, limits, before).run(ladders);
}

}  // namespace weft
