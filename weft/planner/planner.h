// Answers questions of what steps take. All who plan a program ask here: `weft plan`, a run before
// it trains, and the search for what would make it fit.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "weft/base/error.h"
#include "weft/planner/answer.h"
#include "weft/planner/question.h"

namespace weft {

// Calls `plan` for the step `name`. Keeps StepTooLarge in `largest` if its least_bytes are the most
// so far, and names the step in every error that says that memory does not suffice.
void plan_step(const std::string& name, std::optional<StepTooLarge>& largest,
               const std::function<void()>& plan);

// Plans every step under the question's options. Throws StepTooLarge where a limit of memory is
// exceeded: its least_bytes suffice for every step.
PlanAnswer answer(const PlanQuestion& question);
// Does the same; nullopt for each step that exceeds the limit.
std::vector<std::optional<PlannedStep>> plans_that_fit(const PlanQuestion& question);

// Returns the limit of memory that leaves at most `bytes`: whole MiB, so that words can say it.
size_t as_limit(size_t bytes);

// Answers within the question's limit so that the run takes at most `has` bytes in total of the
// memory of its device, or of this machine (0: unknown). Lowers the limit of the question where its
// plan takes more besides. Returns nullopt where it does not fit; where the minimum is known by
// then, `least` is set to the smallest possible bytes of state and arena.
std::optional<PlanAnswer> answer_within(PlanQuestion& question, size_t has,
                                        size_t* least = nullptr);

// ---- what would make it fit, or take less time

// A Change is a question that differs in one respect, in the words of whoever asks.
struct Change {
  std::string what;  // "--train.precision bf16"
  std::function<PlanQuestion()> question;
};

// A Ladder is changes of one kind, the mildest first, each of which takes less memory than the one
// before it. The mildest that fits is wanted; where the last does not fit, none does.
struct Ladder {
  enum class When : uint8_t { always, nothing_fits_yet };
  std::vector<Change> changes;
  When when = When::always;
  int unless = -1;  // a ladder, by its place, one of whose changes fits: then this one is left out
};

struct Remedy {
  std::string what;
  double seconds = 0;  // expected seconds of an update; 0: unknown
};

struct Remedies {
  std::vector<Remedy> found;    // the quickest first
  double before_seconds = 0;    // of an update to compare with; 0: there was no time to plan it
  bool is_out_of_time = false;  // there may be more
};

// SearchLimits bound a search: `has` as in answer_within(), `until` in processor_seconds(). A plan
// that is begun before then is completed.
struct SearchLimits {
  size_t has = 0;
  double until = 0;
};

// Finds changes with which a run fits. A question with a limit that nobody chose (`is_ours`) is
// asked without it first, as a user who makes the change would be answered. `before` is the seconds
// of an update to compare with; nullopt: those of `question` without a limit of memory.
Remedies find_remedies(const PlanQuestion& question, const std::vector<Ladder>& ladders,
                       bool is_ours, const SearchLimits& limits, std::optional<double> before = {});

}  // namespace weft
