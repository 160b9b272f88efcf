// Answers questions of what steps take. All who plan a run ask here: `weft plan`, a run before it
// trains, and the search for what would make it fit. Inference of a published model or ONNX file is
// summed up from its own plans (cli/verbs/plan_inference.cpp).
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

// Calls `plan` for the step `name`. StepTooLarge becomes the refusal if its least_bytes are the
// most so far; other errors that say that memory does not suffice are thrown with the step's name.
void plan_step(const std::string& name, std::optional<Refusal>& refusal,
               const std::function<void()>& plan);

// Refusals are how many steps that do not fit are looked for: all of them, so that the least bytes
// suffice for every step, or the first, for those who ask no more than whether a run fits.
enum class Refusals : uint8_t { all, first };

// Plans every step under the question's options.
PlanAnswer answer(const PlanQuestion& question, Refusals refusals = Refusals::all);
// Does the same, and throws a refusal as StepTooLarge.
PlanAnswer answer_that_fits(const PlanQuestion& question);

// Returns the limit of memory that leaves at most `bytes`: whole MiB, so that words can say it.
size_t as_limit(size_t bytes);

// Answers within the question's limit so that the run takes at most `has` bytes in total of the
// memory of its device, or of this machine (0: unknown). Lowers the limit of the question where its
// plan takes more besides. A refusal's least bytes are 0 where the steps fit the limit, and what
// the run takes besides does not fit in `has`.
PlanAnswer answer_within(PlanQuestion& question, size_t has, Refusals refusals = Refusals::all);

// ---- what would make it fit, or take less time

struct Remedy {
  std::string what;
  double seconds = 0;  // expected seconds of an update; 0: unknown
};

struct Remedies {
  std::vector<Remedy> found;    // the quickest first
  bool is_out_of_time = false;  // there may be more
};

// SearchLimits bound a search: `has` as in answer_within(), `until` in processor_seconds(). A plan
// that is begun before then is completed.
struct SearchLimits {
  size_t has = 0;
  double until = 0;
};

// Finds changes, of those that the question allows, with which a run fits. A question with a limit
// that nobody chose (`is_ours`) is asked without it first, as a user who makes the change would be
// answered.
Remedies find_remedies(const PlanQuestion& question, bool is_ours, const SearchLimits& limits);

}  // namespace weft
