// Searches the changes with which a run fits, or takes less time, and says their price.
#include <algorithm>
#include <set>
#include <utility>

#include "weft/base/error.h"
#include "weft/base/host/stopwatch.h"
#include "weft/planner/planner.h"

namespace weft {
namespace {
class Search {
 public:
  Search(bool is_ours, const SearchLimits& limits) : is_ours_(is_ours), limits_(limits) {}

  Remedies run(const std::vector<Ladder>& ladders) {
    std::set<int> fit;  // the ladders of which a change fits
    for (int at = 0; at < static_cast<int>(ladders.size()); ++at) {
      const Ladder& ladder = ladders[static_cast<size_t>(at)];
      if (fit.contains(ladder.unless)) continue;
      if (ladder.when == Ladder::When::nothing_fits_yet && !found_.empty()) continue;
      if (climb(ladder)) fit.insert(at);
    }
    std::ranges::stable_sort(found_, {}, &Remedy::seconds);
    return {std::move(found_), is_out_of_time()};
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
      const PlanAnswer found = answer_within(typed, limits_.has, Refusals::first);
      if (!found.refusal) return found.expected_seconds();
      if (is_out_of_time()) return std::nullopt;
    }
    const PlanAnswer found = answer_within(question, limits_.has, Refusals::first);
    return found.refusal ? std::nullopt : std::optional(found.expected_seconds());
  }

  void add(const Change& change, double time) {
    if (std::ranges::find(found_, change.what, &Remedy::what) == found_.end())
      found_.push_back({change.what, time});
  }

  bool is_ours_;
  SearchLimits limits_;
  std::vector<Remedy> found_;
};
}  // namespace

Remedies find_remedies(const PlanQuestion& question, bool is_ours, const SearchLimits& limits) {
  return Search(is_ours, limits).run(question.may_change);
}

}  // namespace weft
