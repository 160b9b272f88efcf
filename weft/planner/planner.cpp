#include "weft/planner/planner.h"

#include <fmt/format.h>

#include "weft/base/host/parallel.h"
#include "weft/device/registry.h"
#include "weft/passes/passes.h"

namespace weft {
namespace {
PlannedStep planned(const CapturedStep& step, const PlanQuestion& question) {
  PassOptions options{.library = &library("null:" + question.device),
                      .threads = thread_count(),
                      .step = question.options,
                      .with_graph = true};
  options.step.mode = step.mode;
  options.step.held = resident_bytes(step.beside, question.options.offload);
  // The bindings live as long as the plan: narrower copies of weights that one step reads are
  // copies to the steps that are planned after it, as in a run.
  const auto bound = std::make_shared<const BoundPlan>(bound_plan(step.graph, options));
  return {step.name, std::shared_ptr<const Plan>(bound, &bound->plan), step.per_update,
          std::shared_ptr<const Graph>(bound, &bound->graph)};
}
}  // namespace

void plan_step(const std::string& name, std::optional<Refusal>& refusal,
               const std::function<void()>& plan) try {
  plan();
} catch (const StepTooLarge& error) {
  if (!refusal || error.least_bytes > refusal->least_bytes)
    refusal = {fmt::format("{}: {}", name, error.what()), error.least_bytes};
} catch (const Error& error) {
  if (error.kind() != ErrorKind::does_not_fit) throw;
  throw Error(error.kind(), "{}: {}", name, error.what());
}

PlanAnswer answer(const PlanQuestion& question, Refusals refusals) {
  PlanAnswer found;
  for (const CapturedStep& step : question.steps) {
    plan_step(step.name, found.refusal, [&] { found.plans.push_back(planned(step, question)); });
    if (found.refusal && refusals == Refusals::first) break;
  }
  return found.refusal ? found : sum_up(question, std::move(found.plans));
}

PlanAnswer answer_that_fits(const PlanQuestion& question) {
  PlanAnswer found = answer(question);
  if (found.refusal) throw StepTooLarge(found.refusal->least_bytes, found.refusal->message);
  return found;
}

size_t as_limit(size_t bytes) { return bytes >> 20 > 0 ? bytes >> 20 << 20 : bytes; }

PlanAnswer answer_within(PlanQuestion& question, size_t has, Refusals refusals) {
  // The memory that a process takes besides state and arena depends on its plan, so the second plan
  // has that much less room.
  for (int time = 0; time < 2; ++time) {
    PlanAnswer found = answer(question, refusals);
    if (found.refusal) return found;
    const size_t takes = found.memory_taken();
    if (has == 0 || takes <= has) return found;
    const size_t limit = question.options.memory;
    if (limit <= takes - has) break;
    question.options.memory = as_limit(limit - (takes - has));
  }
  return {.refusal = Refusal{.message = "the run takes more besides its steps than memory has"}};
}

}  // namespace weft
