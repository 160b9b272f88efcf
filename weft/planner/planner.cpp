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

// Plans every step; `largest` is set to the error of the largest one that does not fit, or with
// `until_one_fails` of the first.
std::vector<std::optional<PlannedStep>> all_planned(const PlanQuestion& question,
                                                    std::optional<StepTooLarge>& largest,
                                                    bool until_one_fails = false) {
  std::vector<std::optional<PlannedStep>> all;
  for (const CapturedStep& step : question.steps) {
    std::optional<PlannedStep>& plan = all.emplace_back();
    plan_step(step.name, largest, [&] { plan = planned(step, question); });
    if (largest && until_one_fails) break;
  }
  return all;
}

PlanAnswer answer_or_throw(const PlanQuestion& question, bool until_one_fails) {
  std::optional<StepTooLarge> largest;
  std::vector<std::optional<PlannedStep>> all = all_planned(question, largest, until_one_fails);
  if (largest) throw StepTooLarge(*largest);
  std::vector<PlannedStep> plans;
  plans.reserve(all.size());
  for (std::optional<PlannedStep>& plan : all) plans.push_back(*std::move(plan));
  return sum_up(question, std::move(plans));
}
}  // namespace

void plan_step(const std::string& name, std::optional<StepTooLarge>& largest,
               const std::function<void()>& plan) try {
  plan();
} catch (const StepTooLarge& error) {
  if (!largest || error.least_bytes > largest->least_bytes)
    largest.emplace(error.least_bytes, fmt::format("{}: {}", name, error.what()));
} catch (const Error& error) {
  if (error.kind() != ErrorKind::does_not_fit) throw;
  throw Error(error.kind(), "{}: {}", name, error.what());
}

size_t as_limit(size_t bytes) { return bytes >> 20 > 0 ? bytes >> 20 << 20 : bytes; }

PlanAnswer answer(const PlanQuestion& question) { return answer_or_throw(question, false); }

std::vector<std::optional<PlannedStep>> plans_that_fit(const PlanQuestion& question) {
  std::optional<StepTooLarge> largest;
  return all_planned(question, largest);
}

std::optional<PlanAnswer> answer_within(PlanQuestion& question, size_t has, size_t* least) {
  // The memory that a process takes besides state and arena depends on its plan, so the second plan
  // has that much less room.
  for (int time = 0; time < 2; ++time) {
    try {
      PlanAnswer found = answer_or_throw(question, least == nullptr);
      const size_t takes = found.memory_taken();
      if (has == 0 || takes <= has) return found;
      const size_t limit = question.options.memory;
      if (limit <= takes - has) return std::nullopt;
      question.options.memory = as_limit(limit - (takes - has));
    } catch (const StepTooLarge& error) {
      if (least != nullptr) *least = error.least_bytes;
      return std::nullopt;
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::does_not_fit) throw;
      return std::nullopt;
    }
  }
  return std::nullopt;
}

}  // namespace weft
